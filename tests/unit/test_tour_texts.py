"""The catalogues: complete in both languages, with the same facts in them, and without a number of their own."""

import re

import pytest

from specview.tour.catalogue import LANGUAGES, TEXTS, Catalogue, language_of
from specview.tour.station import ORDER
from specview.tour.words import Word, fields, fill, plain

EN, ZH = TEXTS["en"], TEXTS["zh"]


def test_both_catalogues_have_the_same_keys():
    assert EN.keys() == ZH.keys()


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_empty(language):
    assert all(text.strip() for text in TEXTS[language].values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_station_has_a_title_a_lead_and_a_question(language):
    for key in ORDER:
        assert f"{key}.title" in TEXTS[language]
        assert f"{key}.lead" in TEXTS[language]
        assert (f"{key}.ask" in TEXTS[language]) == (key != "close")


@pytest.mark.parametrize("language", LANGUAGES)
def test_prose_holds_no_figure_but_those_of_the_formulas(language):
    for key, text in TEXTS[language].items():
        prose = re.sub(r"\{[^}]*\}", "", text)
        assert not re.search(r"[2-9]|\d\d|[₂-₉]", prose.replace("p₂", "")), (key, prose)


def test_both_languages_tell_the_same_facts():
    for key in EN:
        assert fields(ZH[key]) == fields(EN[key]), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_texts_are_printable(language):
    assert all(text.isprintable() for text in TEXTS[language].values())


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "C"}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_GB.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8", "LC_MESSAGES": "zh_TW"}, "zh"),
        ({"LC_ALL": "", "LANG": "zh"}, "zh"),
    ],
)
def test_the_locale_chooses_the_language(environment, language):
    assert language_of(environment) == language


def test_a_value_keeps_its_role_and_its_braces():
    words = fill("“{y}” was rejected", {"y": Word("{x} [b]", "rejected")})
    assert plain(words) == "“{x} [b]” was rejected"
    assert words[1] == Word("{x} [b]", "rejected")


def test_a_missing_key_or_value_is_an_error():
    with pytest.raises(KeyError):
        Catalogue("en").text("no such key")
    with pytest.raises(KeyError):
        fill("{y}", {})
