"""The whole suite compiles what it tests: no code from disk, and nothing left in the user's folder."""

import os

os.environ["TENSOREXPR_CACHE_DIR"] = ""
