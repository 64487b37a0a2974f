"""How many points there are: by splitting, in closed form for polygons, as polynomials of sizes."""
