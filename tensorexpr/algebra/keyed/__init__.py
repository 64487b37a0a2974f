"""Points that are looked for by key: they are sent to their keys (`keys`), few of a sort plan to their places (`places`), those of few keys
are told apart by a condition (`few`); values that are sent are computed in lanes before (`sent`); factors that are 0 or 1 are such
conditions, too (`masks`), and so are places beyond a border that a maximum meets again (`borders`)."""
