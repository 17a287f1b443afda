"""A Python program that AOTAutograd gets wrong."""

WRONG = """
import torch

def program(x):
    x.expand(3, 4).zero_()

def calls(program):
    base = torch.ones(8)
    x = base[:4]
    out = program(x)
    return locals()
"""
