"""Which messages a question is about, in any language."""

from __future__ import annotations

from sessions_app.context.extracts import Said, extract
from sessions_app.context.relevance import Index, Indexes
from sessions_app.context.words import cut_to_tokens, has_anaphor, token_estimate, with_reserve, words


def index_of(*texts: str) -> Index:
    index = Index()
    for number, text in enumerate(texts, 1):
        index.add(number * 10, number, text)
    return index


def test_words_of_chinese_are_pairs_and_names_are_taken_apart() -> None:
    assert words("颐和园划船") == ["颐和", "和园", "园划", "划船"]
    assert words("the SessionStores of sessions_app") == [
        "sessionstore",
        "session",
        "store",
        "sessions_app",
        "session",
        "app",
    ]
    assert words("是的吗") == []


def test_the_message_that_shares_rare_words_comes_first_and_the_others_not_at_all() -> None:
    index = index_of("北京今天晴，25-32℃", "推荐：1.奥森跑步 2.颐和园划船 3.香山徒步", "The core module has a cache")
    assert [item.key for item in index.scores("如果去颐和园划船，明天怎么样")] == [20]
    assert [item.key for item in index.scores("is the cache of the core any good?")] == [30]
    assert index.scores("nothing in common") == []


def test_an_index_takes_each_message_once_and_leaves_out_what_is_known() -> None:
    index = index_of("alpha beta", "alpha gamma")
    index.add(10, 1, "alpha beta")
    assert len(index) == 2
    assert {item.key for item in index.scores("alpha")} == {10, 20}
    assert [item.key for item in index.scores("alpha", but=[10])] == [20]


def test_readers_who_see_different_things_never_share_an_index() -> None:
    indexes = Indexes(most=2)

    def fill(text: str) -> list[int]:
        return [item.key for item in indexes.search((1, text), lambda index: index.add(1, 1, text), "secret")]

    assert fill("the secret") == [1]
    assert fill("nothing") == []
    assert fill("the secret") == [1]
    assert fill("another") == []


def test_anaphors_of_both_languages() -> None:
    for text in ("那它呢？", "这个怎么样", "is it safe?", "why that one", "tell me more about this"):
        assert has_anaphor(text), text
    for text in (
        "明天天气怎么样",
        "make sure that all tests pass",
        "It is raining in Beijing, which hat?",
        "with wits",
    ):
        assert not has_anaphor(text), text


def test_tokens_are_estimated_with_a_reserve_and_long_text_is_cut_not_dropped() -> None:
    assert (token_estimate("abcd"), token_estimate("abcde"), token_estimate("北京")) == (1, 2, 2)
    assert with_reserve(100) == 125
    assert with_reserve(100, 2.0) == 250
    cut = cut_to_tokens("长" * 1000, 50)
    assert token_estimate(cut) <= 50
    assert cut.startswith("长长")
    assert cut.endswith("[cut]")


def test_an_extract_keeps_decisions_says_who_and_fits() -> None:
    said = [Said("a", f"Filler sentence number {n} about nothing much at all.") for n in range(40)]
    said.insert(20, Said("boss", "We decided that the deadline of core/engine.py is 14 March. Fine."))
    text = extract(said, 60)
    assert "[boss] We decided that the deadline" in text
    assert token_estimate(text) <= 70
    assert extract(said, 60) == text, "deterministic"
    assert extract([Said("a", "好")], 60) == "[a] 好"
    assert extract([], 60) == ""
