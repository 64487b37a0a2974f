"""Long programs in pieces: a piece is scheduled, lowered and proved by itself, equal ones once, and their kernels run one after the other.

Schedules look at pairs of definitions, so the time that they take grows faster than a program; and the layers of a model are the same
computation under other names. A program of more than `MOST_WHOLE` definitions is therefore cut, after it is simplified:

1. What is only read far behind moves down to its first reader: the labels of a loss stand with the loss.
2. It is cut where least is lost: at each place between `LEAST` and `MOST` definitions from the last cut one looks at the bytes that what is
   behind reads of what is in front. What a sum of products reads, or what is stored for others anyway, counts less: it would not be
   computed in the loops of its readers. The first of the cheapest places is taken, the last where all are alike. The look is local, so
   equal layers are cut alike.
   Integers are not cut from what reads or writes where they say, nor a scan from readers of its last entry: what is known of them ends
   with their piece.
3. What stands between two cuts falls apart where definitions would not share loops: sums of products that read what is stored anyway, or
   windows of what is made, and sums that have no large tensor in common. The gradients of a layer's weights are many such; layers have more
   of them alike than in all.
4. A piece is a program: what it reads are its inputs, what others read its outputs, and its tensors are called T0, T1, ... Equal
   pieces, in one program or in several of a process, have one nest; `MOST_KEPT` of them are remembered. What floats of a constant are says
   nothing about loops, so layers that differ in their weights are equal.
5. The nest of the whole has the kernels of all pieces in order, under the names that they have there. What leaves a piece is written
   whole before the next one begins, which is what the proof of each piece shows; so the proof of the whole is all of theirs.

Shorter programs of open sizes are cut around gradients over pairs of rows and columns, which run in strips of rows (`rows`, `strips`).

Pieces that check data as they run name the user's lines, and are shared only where those are the same.
"""

from tensorexpr.codegen.pieces.cut import Piece, pieces_of
from tensorexpr.codegen.pieces.join import nest_of_pieces
from tensorexpr.codegen.pieces.rows import pieces_of_rows, rows_of
from tensorexpr.codegen.pieces.strips import in_strips

__all__ = ["Piece", "in_strips", "nest_of_pieces", "pieces_of", "pieces_of_rows", "rows_of"]
