"""Files as spreadsheets, databases and data frames write them: lines above the table, odd ends, objects in texts."""

import gzip
import io
import json

import pytest

from lessonlib.base.errors import InvalidInputError
from lessonlib.base.files import GivenFile
from lessonlib.facts.own_traffic import read_traffic

HEAD = "prompt_tokens,output_tokens"


def both(traffic):
    return traffic.prompt.tolist(), traffic.output.tolist()


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


ABOVE = {
    "a title": ("Usage report\n", 1),
    "a title with a comma": ("Usage report,January,2025\n", 1),
    "a padded title": ("Usage report,\n,\n", 1),
    "a comment": ("# exported 2025, by me\n", 1),
    "names and values": ("Account: 5\nTotal requests: 2\n\n", 2),
    "groups of columns": ("usage,usage\n", 1),
    "types": ("#datatype,long\n", 1),
    "many": ("x\n" * 30, 30),
    "a quoted one": ('"two\nlines",x\n', 2),
}


@pytest.mark.parametrize("above, count", ABOVE.values(), ids=ABOVE)
def test_what_stands_above_the_column_names_is_skipped_and_said(above, count):
    traffic = read_traffic(f"{above}{HEAD}\n5,6\n7,8\n".encode())
    assert both(traffic) == ([5, 7], [6, 8])
    assert traffic.notes == (f"Not read: {count} lines above the line of column names.",)
    line = above.count("\n") + 3
    with pytest.raises(InvalidInputError, match=rf"Line {line} \(row 2\), column 'prompt_tokens': 'x'"):
        read_traffic(f"{above}{HEAD}\n5,6\nx,8\n")
    assert both(read_traffic(f"{above}a,b\n5,6\n", "b", "a")) == ([6], [5])


def test_where_no_line_names_the_columns_the_first_one_is_told():
    with pytest.raises(InvalidInputError, match=r"line 1: no column is known .*'day', 'how'"):
        read_traffic("day,how\n1,2\n3,4\n")
    with pytest.raises(InvalidInputError, match="line 2: it has one column, 'Usage report'"):
        read_traffic("\nUsage report\n" + "a\n" * 100 + f"{HEAD}\n5,6\n")
    text = f'id,note\n1,"\n{HEAD}\n"\n'  # a text, in the cell of another table
    with pytest.raises(InvalidInputError, match="line 1: no column is known"):
        read_traffic(text)
    assert both(read_traffic(f'"two\nlines",{HEAD}\nx,5,6\n')) == ([5], [6])
    assert read_traffic(f'"two\nlines",{HEAD}\nx,5,6\n').notes == ()


@pytest.mark.parametrize(
    "first", ["sep=;", "SEP=;", '"sep=;"', "sep=;;", "sep = ;", "sep=;\r", "#sep=;", "# made today\nsep=;", "\nsep=;"]
)
def test_a_line_that_names_the_delimiter_is_understood(first):
    text = f"{first}\nprompt_tokens;output_tokens;cost\n5;6;1,5\n"
    for source in (text, text.encode("utf-8-sig"), text.encode("utf-16"), gzip.compress(text.encode())):
        assert both(read_traffic(source)) == ([5], [6])
    assert both(read_traffic("sep=\\t\n" + f"{HEAD}\n5,6\n".replace(",", "\t"))) == ([5], [6])


@pytest.mark.parametrize(
    "head, rows", [(HEAD, "5,6,\n7,8,\n"), (f"{HEAD},", "5,6\n7,8\n"), (f"{HEAD},,", "5,6,\n7,8,,\n")]
)
def test_a_delimiter_at_the_end_of_lines_is_no_column(head, rows):
    assert both(read_traffic(f"{head}\n{rows}")) == ([5, 7], [6, 8])
    with pytest.raises(InvalidInputError, match=r"Line 4 \(row 3\) has 3 fields"):
        read_traffic(f"{head}\n{rows}9,1,2\n")
    cell = '"{""prompt_tokens"": 3, ""completion_tokens"": 4}"'
    assert both(read_traffic(f"id,usage,\n1,{cell},\n2,{cell}\n")) == ([3, 3], [4, 4])


ROWS = [{"prompt_tokens": 5, "output_tokens": 6}, {"prompt_tokens": 7, "output_tokens": 8}]
FRAMES = {
    "columns": {"prompt_tokens": {"0": 5, "1": 7}, "output_tokens": {"0": 6, "1": 8}},
    "index": {"0": ROWS[0], "1": ROWS[1]},
    "split": {"columns": list(ROWS[0]), "index": [0, 1], "data": [[5, 6], [7, 8]]},
    "table": {"schema": {"fields": [{"name": "prompt_tokens", "type": "integer"}]}, "data": ROWS},
    "by request": {"req-1": {"usage": ROWS[0]}, "req-2": {"usage": ROWS[1], "error": None}},
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_data_frame_is_read_however_it_is_written(frame):
    for indent in (None, 1):
        assert both(read_traffic(json.dumps(frame, indent=indent))) == ([5, 7], [6, 8])


def test_statistics_by_name_are_no_requests():
    with pytest.raises(InvalidInputError, match="2 columns may hold the prompt tokens"):
        read_traffic(json.dumps({"mean": ROWS[0], "p99": ROWS[1]}))


@pytest.mark.parametrize("written", [json.dumps, str])
def test_objects_in_texts_are_read(written):
    texts = [{"id": n, "usage": written(row)} for n, row in enumerate(ROWS)]
    assert both(read_traffic(lines(*texts))) == ([5, 7], [6, 8])
    assert both(read_traffic(json.dumps({"data": texts}))) == ([5, 7], [6, 8])
    table = "id;usage\n" + "".join(
        f'{n};"{written(row).replace(chr(34), chr(34) * 2)}"\n' for n, row in enumerate(ROWS)
    )
    assert both(read_traffic(table)) == ([5, 7], [6, 8])
    with pytest.raises(InvalidInputError, match=r"line 3: 'usage' is '\{\"pro"):
        read_traffic(lines(*texts, {"id": 3, "usage": '{"pro'}))


def test_what_a_printed_object_says_is_not_executed(tmp_path):
    place = tmp_path / "made"
    cell = f"{{'prompt_tokens': open({str(place)!r}, 'w').write('x'), 'completion_tokens': 3}}"
    with pytest.raises(InvalidInputError, match="no column is known"):
        read_traffic(f'id,usage\n1,"{cell}"\n')
    assert not place.exists()


@pytest.mark.parametrize("numbers", ['{"$numberInt": "%s"}', '{"$numberLong": "%s"}', '{"N": "%s"}', '"%s"', "%s.0"])
def test_numbers_as_databases_write_them(numbers):
    rows = "".join(
        f'{{"Item": {{"prompt_tokens": {numbers % p}, "output_tokens": {numbers % o}}}}}\n' for p, o in ((5, 6), (7, 8))
    )
    assert both(read_traffic(rows)) == ([5, 7], [6, 8])


LATE = {
    "an object twice": '{"usage": {"prompt_tokens": 5, "completion_tokens": 6}, "usage": {}, "error": null}',
    "an error twice": '{"usage": {"prompt_tokens": 5, "completion_tokens": 6}, "error": "x", "error": null}',
    "an escaped name": '{"usage": {"prompt_tokens": 5, "prompt\\u005ftokens": 9, "completion_tokens": 6}}',
}


@pytest.mark.parametrize("line", LATE.values(), ids=LATE)
def test_a_name_twice_on_the_way_to_a_count_is_refused_wherever_it_stands(line):
    good = '{"usage": {"prompt_tokens": 7, "completion_tokens": 8}, "error": null}\n'
    with pytest.raises(InvalidInputError, match=r"line 1,151: .* stands twice in one object"):
        read_traffic(good * 1150 + line + "\n" + good)
    assert len(read_traffic(good * 1150 + good.replace("null", '"\\u002f"') + good)) == 1151


NO_TABLE = {
    "a database": b"SQLite format 3\0" + b"\x10\0\1\1" * 99,
    "a web page": b"<!DOCTYPE html>\n<html>prompt_tokens,output_tokens\n1,2\n</html>",
    "Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 12345\n",
    "Avro": b"Obj\x01\x04\x14avro.codec\x08null",
    "PDF": b"%PDF-1.7\n%\xe2\xe3",
    "Arrow": b"ARROW1\0\0" + b"\xff" * 50,
    "an old kind": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 50,
}


@pytest.mark.parametrize("what", NO_TABLE)
def test_what_is_no_table_is_named(what):
    for content in (NO_TABLE[what], gzip.compress(NO_TABLE[what])):
        with pytest.raises(InvalidInputError, match=f"is .*{what}.*; save it as CSV UTF-8"):
            read_traffic(content)


def test_pairs_of_columns_that_may_be_numbers_with_commas_are_said():
    head = "prompt_tokens,output_tokens,latency,wait\n"
    assert "commas between thousands" in read_traffic(head + "1,100,2,200\n3,456,1,789\n").notes[0]
    assert read_traffic(head + "1,100,2,200\n3,456,1,78\n").notes == ()


def test_an_address_is_not_fetched_and_a_disk_that_fails_is_one_sentence(tmp_path, monkeypatch):
    with pytest.raises(InvalidInputError, match="download it first"):
        read_traffic("https://example.org/requests.csv")

    class Failing(io.BytesIO):
        def read(self, *_):
            raise OSError(5, "Input/output error")

    (tmp_path / "own.csv").write_text(f"{HEAD}\n5,6\n", encoding="utf-8")
    monkeypatch.setattr(GivenFile, "open", lambda self: (Failing(), 9))
    with pytest.raises(InvalidInputError, match=r"own.csv' cannot be read: Input/output error"):
        read_traffic(tmp_path / "own.csv")
