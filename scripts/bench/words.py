"""Words of transcripts, and how many of them are wrong."""

import re
import unicodedata


def words(text: str) -> list[str]:
    text = unicodedata.normalize("NFC", text.lower().replace("’", "'").replace("-", " "))
    return re.sub(r"[^\w' ]", " ", text).split()


def errors(reference: list[str], found: list[str]) -> int:
    """Least number of words to change, add or leave out."""
    row = list(range(len(found) + 1))
    for i, word in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(found, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]
