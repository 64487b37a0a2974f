"""Points that are looked for by key: they are sent to their keys (`keys`), few of a sort plan to their places (`places`), with values that
are computed in lanes before (`sent`); factors that are 0 or 1 are such conditions, too (`masks`)."""
