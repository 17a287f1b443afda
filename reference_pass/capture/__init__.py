"""From a function, a module, or any graph, to a graph of ATen calls, and the sizes it is for."""
