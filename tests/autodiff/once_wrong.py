"""Random programs whose derivatives once were wrong, by the seed of their data. Inputs called `pick3_...` hold indices below 3."""

PROGRAMS = {
    1045: """
X1: f64[2, 4] = input()
T2[i, j]: f64[2, 3] = X1[i, -j + 3]
Y3: f64[1] = scatter(
    {
        i // 5: max(
            -0.0 + where(j * 2 + i * 3 - 1 >= 0 and j * 2 + i * 3 - 1 < 2, T2[j * 2 + i * 3 - 1, j // 2], 0.0)
            for j in range(4)
        )
        for i in range(5)
    }
)
T4[i]: f32[0] = reduce(
    lambda a0, a1, b0, b1: (a0 + b0, a1 + b1),
    (f32(0.0), 0),
    (
        (minimum(maximum(where(not j + i * 3 > 3, trunc(2.0), neg(3.0)), -2.0), 2.0), 1)
        for j in range(1, 3)
        if (j + i) % 2 == 1
    )
)[0]
T5[i, j, k]: f64[2, 1, 3] = X1[i, k + 1]
return Y3, T4, T5
""",
    1149: """
sizes(n)
X1: f64[n] = input()
X2: f32[3] = input()
X3: f32[n] = input()
X4: f64[2 * n + 1] = input()
pick3_10: i64[6] = input()
for t in range(n):
    s5: f32[n] = state(X3)
    g6[i]: f32[n] = minimum(maximum(floor(-X3[t]), -4.0), 4.0)
    H7[t] = s5 = g6
T8[i, j, k]: f64[2, 2 * n + 1, 2] = (
    reduce(
        lambda a0, a1, b0, b1: (a0 * b0, a1 * b0 + b1),
        (f64(1.0), f64(0.0)),
        (
            (minimum(maximum(X4[minimum(j + 1, 2 * n + 1 - 1)], -1.0), 1.0), minimum(maximum(X4[j], -2.0), 2.0))
            for l in range(1)
        )
    )[0]
    - reduce(
        lambda a0, a1, b0, b1: (a0 * b0, a1 * b0 + b1),
        (f64(1.0), f64(0.0)),
        (
            (minimum(maximum(X4[minimum(j + 1, 2 * n + 1 - 1)], -1.0), 1.0), minimum(maximum(X4[j], -2.0), 2.0))
            for l in range(1)
        )
    )[1]
)
T9[i, j, k]: f32[6, 4, 4] = (sum(X2[argmax(X2[p] for p in range(3))] for l in range(-1, 1)) + X2[pick3_10[i]]) % 3.0
return H7, T8, T9
""",
    1718: """
X1: f32[3, 3] = input()
T2[i, j]: f64[1, 4] = sum(abs(-0.5) // 2.0 for k in range(-1, 3) for l in range(1, 2) if i - l > 0)
T3[i, j]: f64[2, 2] = T2[-j % 1, i + 2]
for t in range(2):
    s4: f32[3, 3] = state(X1)
    s5: f32[3, 3] = state(X1)
    g6[i, j]: f32[3, 3] = minimum(
        maximum(
            trunc(
                s4[(t * 2 + i) % 3, maximum(minimum(j + t * 3, 2), 0)]
                + where(i + t - 2 >= 0 and i + t - 2 < 3, s5[j, i + t - 2], 0.0)
            ),
            -4.0
        ),
        4.0
    )
    g7[i, j]: f32[3, 3] = where(
        i - t <= -1,
        min(s5[0, (-t + k) % 3] for k in range(1, 5) if -i > 0),
        sum(s4[k * 3 % 3, i] for k in range(t + 1) for l in range(-1, 0))
    )
    H8[t] = s4 = g6
    H9[t] = s5 = g7
return T2, H9
""",
    1859: """
X1: f64[3, 3] = input()
X2: f32[6, 3, 5] = input()
X3: f32 = input()
pick5_7: i64[6] = input()
T4[i]: f64[4] = reduce(
    lambda a0, b0: maximum(a0, b0),
    f64(-inf),
    (
        minimum(
            maximum(
                where(sign(X1[j, j]) >= 0.0, max(X1[j, j] for l in range(4) for p in range(j + 1)), -X1[1, k // 2]),
                -2.0
            ),
            2.0
        )
        for j in range(3)
        for k in range(4)
    ),
    name="largest"
)
T5[i, j]: f64[3, 5] = (
    floor(T4[(-i + j) % 4])
    + reduce(
        lambda a0, a1, b0, b1: (a0 + b0, a1 + b1),
        (f64(0.0), 0),
        ((minimum(maximum(trunc(T4[k]), -2.0), 2.0), 1) for k in range(4))
    )[0]
)
Y6: f64[1] = scatter(
    {
        j // 6: prod(
            minimum(
                maximum(
                    where(i * 3 > 3 or not k - j >= -1, T4[maximum(minimum(k + j, 3), 0)], T5[-k + 1, pick5_7[j]]),
                    -2.0
                ),
                2.0
            )
            for k in range(-1, 1)
        )
        for i in range(2)
        for j in range(6)
    }
)
T8[i, j, k]: f64[3, 3, 6] = Y6[(k + i * 3) // 12]
return T4, T8
""",
    1928: """
sizes(n)
X1: f32[n] = input()
X2: f32[3 * n] = input()
X3: f64[5, 6] = input()
X4: f32 = input()
pick6_6: i64[n] = input()
T5[i]: f64[1] = (
    reduce(
        lambda a0, a1, b0, b1: (a0 * b0, a1 * b0 + b1),
        (f64(1.0), f64(0.0)),
        (
            (
                minimum(maximum(X3[(k + j) % 5, 0], -1.0), 1.0),
                minimum(maximum(round(X3[maximum(minimum(k * 2, 4), 0), pick6_6[k]]), -2.0), 2.0)
            )
            for j in range(-1, 0)
            for k in range(n)
        )
    )[0]
    - reduce(
        lambda a0, a1, b0, b1: (a0 * b0, a1 * b0 + b1),
        (f64(1.0), f64(0.0)),
        (
            (
                minimum(maximum(X3[(k + j) % 5, 0], -1.0), 1.0),
                minimum(maximum(round(X3[maximum(minimum(k * 2, 4), 0), pick6_6[k]]), -2.0), 2.0)
            )
            for j in range(-1, 0)
            for k in range(n)
        )
    )[1]
    - reduce(
        lambda a0, b0: maximum(a0, b0),
        f64(-inf),
        (
            minimum(maximum(where(k - 2 >= 0 and k - 2 < 5, X3[k - 2, i - j + 3], 0.0), -2.0), 2.0)
            for j in range(2)
            for k in range(4)
            if k % 2 == 1
        ),
        name="largest"
    )
)
T7[i]: f64[6] = prod(
    minimum(maximum(X3[(j * 2 + i) // 2, i * 3 % 6] * T5[j // 3] * T5[maximum(minimum(-j, 0), 0)], -2.0), 2.0)
    for j in range(1, 3)
)
return T5, T7
""",
    2521: """
sizes(n)
X1: f64[n] = input()
X2: f32[6, 2 * n + 2] = input()
X3: f32[2] = input()
T4[i, j]: f32[2 * n, 4] = reduce(
    lambda a0, a1, b0, b1: (where(b0 > a0, b0, a0), where(b0 > a0, b1, a1)),
    (f32(-inf), 0),
    (
        (
            minimum(
                maximum(
                    max(
                        where(i - p > 3, X2[j + 2, i + k], f32(k))
                        for p in range(k + 1)
                        if X2[l + j, i + l] / 2.0 < 0.0
                    ),
                    -2.0
                ),
                2.0
            ),
            l
        )
        for k in range(2)
        for l in range(minimum(3, 2 - k))
    ),
    name="first_largest"
)[0]
for t in range(n):
    s5: f32[6, 2 * n + 2] = state(X2)
    g6[i, j]: f32[6, 2 * n + 2] = minimum(
        maximum(max(T4[2 * t + 1, (t + j) % 4] for k in range(minimum(3, 6 - i))), -4.0),
        4.0
    )
    H7[t] = s5 = g6
return H7
""",
    # reads at pick[0] % 3: data is no size, or every element of the axis would run the loops of one
    2593: """
sizes(n)
X1: f64[n] = input()
X2: f32[n + 1, 2 * n + 2, 3] = input()
X3: f32[n, 4] = input()
X4: f64 = input()
pick4_6: i64[2] = input()
T5[i]: f32[n + 2] = sum(
    where(k >= 2, X3[j, 0], X3[j, maximum(minimum(j, 3), 0)]) * X3[j, pick4_6[k]]
    for j in range(n)
    for k in range(2)
)
T7[i, j]: f64[4, n] = sign(abs(X4[()]) + sum(X4[()] for k in range(2)))
T8[i, j, k]: f32[5, n + 1, 2 * n + 1] = sum(
    sum(T5[p + 2] + X2[j, 2 * p + 2, pick4_6[0] % 3] for p in range(n))
    for l in range(n)
)
return T7, T8
""",
    # a user's combiner under a loop that starts at -1: what stands around it moves with the loop
    6467: """
X1: f32[1, 5, 3] = input()
pick3_3: i64[2] = input()
T2[i, j, k]: f32[4, 2, 1] = max(
    max(
        reduce(
            lambda a0, b0: maximum(a0, b0),
            f32(-inf),
            (minimum(maximum(X1[k, l * 2 + 2, pick3_3[j]], -2.0), 2.0) for r in range(1, 3)),
            name="largest"
        )
        for q in range(-1, 3)
    )
    for l in range(j, 2)
    for p in range(4)
)
T4[i, j]: f64[3, 1] = min(
    ceil(sum(-2.0 for p in range(k, 3) for q in range(2)))
    for k in range(minimum(3, 3 - i))
    for l in range(2)
)
T5: f32 = T2[2, 1, 0]
T6[i, j]: f64[3, 3] = floor(T4[j, j % 1])
return T2, T6
""",
    # a condition on data whose other parts never hold: no element has loops
    6727: """
X1: f64[3, 2] = input()
X2: f64[3, 3] = input()
X3: f32[5, 4] = input()
T4[i]: f64[3] = (
    -where(
        i * 2 >= 4 or trunc(X3[i * 3 // 2, i]) != 0.0,
        ceil(X1[i, i // 2]),
        sum(X1[-j + 2, k * 2 // 4] for j in range(3) for k in range(4))
    )
)
T5[i, j]: f64[6, 3] = sum(
    reduce(
        lambda a0, a1, b0, b1: (where(b0 > a0, b0, a0), where(b0 > a0, b1, a1)),
        (f64(-inf), 0),
        (
            (prod(minimum(maximum(X2[j, j], -2.0), 2.0) for p in range(1) if -p + i < 6), l)
            for l in range(minimum(3, 6 - i))
        ),
        name="first_largest"
    )[0]
    for k in range(-1, 2)
    if i < 0
    or k * 2 + j * 2 >= 3
        and (
            j + i * 3 >= 12
            and (
                j < 0
                and (
                    j >= 3
                    and (
                        i <= 2
                        or j * 2 > 2
                            and where(-j - 2 >= 0 and -j - 2 < 5, X3[-j - 2, (j * 2 + i) // 3], 0.0) / 4.0 != 0.0
                    )
                )
            )
        )
)
return T4, T5
""",
    # the bound of a loop divides an axis that the element settles: what proves it is about the element
    8391: """
X1: f64[1, 6, 4] = input()
X2: f64[3, 4, 6] = input()
T3[i, j]: f64[2, 5] = sum(
    round(
        reduce(
            lambda a0, a1, b0, b1: (a0 * b0, a1 * b0 + b1),
            (f64(1.0), f64(0.0)),
            (
                (
                    minimum(maximum(where(k >= 0 and k < 4, X1[k + 1, -k + 4, k], 0.0), -1.0), 1.0),
                    minimum(maximum(X1[q - 1, l * 3, p + 2], -2.0), 2.0)
                )
                for p in range(0)
                for q in range(1, 2)
            )
        )[0]
        - reduce(
            lambda a0, a1, b0, b1: (a0 * b0, a1 * b0 + b1),
            (f64(1.0), f64(0.0)),
            (
                (
                    minimum(maximum(where(k >= 0 and k < 4, X1[k + 1, -k + 4, k], 0.0), -1.0), 1.0),
                    minimum(maximum(X1[q - 1, l * 3, p + 2], -2.0), 2.0)
                )
                for p in range(0)
                for q in range(1, 2)
            )
        )[1]
    )
    for k in range(-1, 0)
    for l in range(2)
)
T4[i, j]: f64[4, 1] = (
    reduce(
        lambda a0, a1, b0, b1: (a0 * b0, a1 * b0 + b1),
        (f64(1.0), f64(0.0)),
        (
            (
                minimum(maximum(X2[l, j * 3 + 3, i + 1], -1.0), 1.0),
                minimum(
                    maximum(
                        sum(where(l + 1 >= 0 and l + 1 < 2, T3[l + 1, -i + 3], 0.0) for p in range(minimum(3, 1 - k))),
                        -2.0
                    ),
                    2.0
                )
            )
            for k in range(1)
            for l in range(3)
        )
    )[0]
    * X2[(-i + j) % 3, i, j + i + 1]
)
T5[i, j]: f64[3, 2] = (
    sum(
        min(where(l >= 0 and l < 5, T3[j, l], 0.0) for l in range(1))
        for k in range(3)
        if j + k <= 1
        and where(j * 2 - 2 >= 0 and j * 2 - 2 < 6, X1[i * 3 % 1, j * 2 - 2, k - j + 1], 0.0) - T3[j, i + j * 2] != 0.0
    )
    + where(j + i - 2 >= 0 and j + i - 2 < 4, X2[i, j + i - 2, i * 3 // 2], 0.0)
)
return T4, T5
""",
    # a remainder of the element in an equation with others: it is known, and no name of its own
    7931: """
sizes(n, m)
X1: f32[n, n] = input()
X2: f32[m, m + 2] = input()
X3: f32 = input()
X4: f64[3 * m, 1] = input()
X5: f32[1] = input()
pick4_9: i64[n] = input()
T6[i, j]: f32[4, n] = max(X3[()] for k in range(1, 5) for l in range(1))
T7[i, j]: f32[2, 2] = (
    sign(where(j >= 1, X5[j % 1], X3[()]))
    + prod(
        minimum(
            maximum(sum(where(l * 3 - 2 >= 0 and l * 3 - 2 < 1, X5[l * 3 - 2], 0.0) for l in range(k, 4)), -2.0),
            2.0
        )
        for k in range(1, 4)
    )
)
T8[i, j, k]: f32[4, n, n] = reduce(
    lambda a0, b0: maximum(a0, b0),
    f32(-inf),
    (
        minimum(
            maximum(
                minimum(
                    sum(T6[maximum(minimum(p + j * 2, 3), 0), (j + 3) % n] for p in range(i, 4)),
                    sum(
                        where(k + 1 >= 0 and k + 1 < 4, T6[k + 1, j], 0.0)
                        for p in range(i + 1)
                        if l >= 0
                        or where(
                                l * 2 - k < 2,
                                T7[maximum(minimum(l * 2 + i, 1), 0), maximum(minimum(l * 2, 1), 0)],
                                T6[i, j]
                            )
                            >= 0.0
                    )
                ),
                -2.0
            ),
            2.0
        )
        for l in range(m)
        if i * 3 <= 0
    ),
    name="largest"
)
return T6, T8
""",
    # a condition with a reduction over p around another reduction over p, which is a scan in the derivative
    8948: """
X1: f64[2] = input()
T2[i, j, k]: f64[1, 3, 5] = max(
    reduce(
        lambda a0, a1, b0, b1: (a0 + b0, a1 + b1),
        (f64(0.0), 0),
        (
            (minimum(maximum(where((q * 2 + k) % 2 == 1, X1[0], X1[(-q + l) % 2]), -2.0), 2.0), 1)
            for p in range(minimum(3, 1 - l))
            for q in range(1, 5)
        )
    )[0]
    for l in range(1)
)
T3[i, j]: f64[2, 3] = reduce(
    lambda a0, a1, b0, b1: (where(b0 > a0, b0, a0), where(b0 > a0, b1, a1)),
    (f64(-inf), 0),
    (
        (
            minimum(
                maximum(
                    min(
                        prod(
                            minimum(maximum(T2[q % 1, j, i * 2 + j], -2.0), 2.0)
                            for q in range(minimum(3, 3 - j))
                            if l + p > 0
                        )
                        for p in range(3)
                    ),
                    -2.0
                ),
                2.0
            ),
            l
        )
        for k in range(j + 1)
        for l in range(-1, 1)
    ),
    name="first_largest"
)[0]
T4[i]: f32[3] = ceil(sum(2.0 for j in range(1, 5) if j + i * 2 >= 3))
return T4
""",
    # a condition that holds because of a NaN: where(c, x, 0) * y decides, so it is computed as it stands
    8364: """
X1: f64[3] = input()
X2: f32[2, 4] = input()
pick4_6: i64 = input()
pick3_7: i64[5] = input()
T3[i, j]: f64[2, 2] = abs(max(X1[k] for k in range(i, 2) if (i * 3 + k) % 2 == 1))
T4[i, j, k]: f64[2, 4, 3] = where(j * 3 + k <= 11, sum(T3[i, i] for l in range(-1, 1)), round(X1[k]) / 2.0)
T5[i]: f64[5] = where(
    where(i >= 0 and i < 2, T4[i, i // 2, i // 2], 0.0) * T4[maximum(minimum(i, 1), 0), i % 4, i // 2] != 0.0,
    sum(
        minimum(
            X1[2],
            T4[
                argmax(X2[argmax(X2[1, p + 1] for p in range(2)), pick4_6[()]] for l in range(2)),
                maximum(minimum(i * 2 + j, 3), 0),
                maximum(minimum(-k + i, 2), 0)
            ]
        )
        for j in range(3)
        for k in range(1)
    ),
    reduce(
        lambda a0, a1, b0, b1: (a0 * b0, a1 * b0 + b1),
        (f64(1.0), f64(0.0)),
        (
            (
                floor(minimum(maximum(T4[1, (i + j) % 4, pick3_7[i]], -1.0), 1.0)),
                floor(
                    minimum(
                        maximum(
                            T4[-i % 2, j * 3 // 3, (j + i) // 3]
                            * where(i - j >= 0 and i - j < 2, T3[i - j, maximum(minimum(i, 1), 0)], 0.0),
                            -2.0
                        ),
                        2.0
                    )
                )
            )
            for j in range(4)
        )
    )[0]
    - reduce(
        lambda a0, a1, b0, b1: (a0 * b0, a1 * b0 + b1),
        (f64(1.0), f64(0.0)),
        (
            (
                floor(minimum(maximum(T4[1, (i + j) % 4, pick3_7[i]], -1.0), 1.0)),
                floor(
                    minimum(
                        maximum(
                            T4[-i % 2, j * 3 // 3, (j + i) // 3]
                            * where(i - j >= 0 and i - j < 2, T3[i - j, maximum(minimum(i, 1), 0)], 0.0),
                            -2.0
                        ),
                        2.0
                    )
                )
            )
            for j in range(4)
        )
    )[1]
)
return T5
""",
    # an infinite adjoint times a branch over indices that is not taken: 0 in either form
    30151: """
X1: f64[3, 2, 3] = input()
X2: f32[3] = input()
X3: f64[4, 3] = input()
T4[i, j]: f64[2, 4] = X3[-j + 3, j * 2 // 3]
T5[i, j, k]: f64[2, 3, 3] = sum(trunc(X3[-i + j + 1, k]) / 2.0 for l in range(1, 5))
T6: f64 = round(min(where(i >= 2, T4[i * 2 % 2, i * 3], T5[i, i + 1, i + 1]) for i in range(2)))
T7[i, j]: f64[4, 3] = (
    where(X2[j] - X2[i * 2 // 3] >= 0.0, T6[()] - T5[j // 2, j * 2 // 2, -j + 2], min(1.0 for k in range(0)))
    * (X3[j * 2 // 2, (j * 3 + i) // 4] * where(i - 2 >= 0 and i - 2 < 3, T5[1, j, i - 2], 0.0) / 4.0)
)
return T6, T7
""",
}
