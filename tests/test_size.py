"""No file of the library has more than 400 lines, no class more than 120: what a reader takes in at once."""

import size


def test_no_file_and_no_class_is_over_its_cap():
    assert size.over_the_caps() == []


def test_a_file_of_content_is_counted_apart():
    assert size.is_content("face/exercises/book/notebook_02.py") and size.is_content("model/config/families/dense.py")
    assert not size.is_content("face/figures/style.py") and not size.is_content("request/cost.py")
    assert {"request/cost.py", "face/figures/style.py"} <= size.files().keys()
