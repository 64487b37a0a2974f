"""What iterations of a loop touch of a buffer: the facts behind rewrites of data.

`places` has the statements that touch a buffer, `windows` what a loop's iteration touches of it, `covering` what it has written of that,
`reaching` which store a load has its value from, `winners` what an argmax accumulates, `rings` where only the last elements along an
axis are needed.
"""
