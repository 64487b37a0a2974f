"""The search over nests: which kernels run in which loops of others, and what runs in lanes and over cores.

plain nest -> groups of kernels with shared loops -> for each group a few nests, each finished -> the cheapest by the model of cost
"""

from tensorexpr.codegen.auto.search.blocks import faster_on_gpu
from tensorexpr.codegen.auto.search.contest import faster
from tensorexpr.codegen.auto.search.searching import searched

__all__ = ["faster", "faster_on_gpu", "searched"]
