"""Pages as notebooks: their cells have all of the code of a page, and run one after the other."""

from __future__ import annotations

import ast

import pytest

from scripts import notebooks
from tests.docs.blocks import ROOT, blocks


@pytest.mark.parametrize("page", notebooks.PAGES, ids=lambda page: page.stem)
def test_a_notebook_has_the_code_of_its_page(page):
    made = notebooks.notebook(page)
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in made["cells"]}) == len(made["cells"])
    code = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "code"]
    lines = {line.strip() for source in code for line in source.splitlines()}
    for source in code:
        ast.parse(source)
    for block in blocks(page):
        if block.language == "python":
            prompts = block.code.lstrip().startswith(">>>")
            wanted = [line for line in block.code.splitlines() if not prompts or line.startswith((">>> ", "... "))]
            assert {(line[4:] if prompts else line).strip() for line in wanted} <= lines | {""}


def test_the_cells_of_the_start_run_in_order():
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in notebooks.cells(ROOT / "docs" / "guides" / "start.md"):
        if cell["cell_type"] == "code":
            code = compile(cell["source"], cell["id"], "exec")
            if "raises-exception" in cell["metadata"].get("tags", ()):
                with pytest.raises(Exception, match="expected"):
                    exec(code, names)
            else:
                exec(code, names)


def test_they_are_written_to_a_folder(tmp_path, capsys):
    assert notebooks.main(tmp_path / "made") == 0
    assert len(list((tmp_path / "made").glob("*.ipynb"))) == len(notebooks.PAGES) and str(tmp_path) in capsys.readouterr().out
