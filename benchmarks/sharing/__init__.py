"""Small programs that write to shared memory, under `torch.compile` and in eager, call by call.

They are what a user may write: views and their writes, masks, optimizer steps, caches, modules with
state, hooks, checkpoints, windows of one data set. From call to call, the arguments share memory in
other ways. Each program runs in inference and in training, under `aot_eager` and `aliasproof`.

How to read a row: *right*: all that the caller can see is as in eager: results, arguments, what
they are views of, state, gradients; which of them share memory, and their sizes and strides.
*bits*: only last bits of numbers differ. *wrong*: something else differs. *raises*: a call that
eager makes raises, is refused, takes too long or ends its process. Below, a line for each program
that is not right says what differs first.
"""

from benchmarks.sharing.sharing_table import measure

__all__ = ["measure"]
