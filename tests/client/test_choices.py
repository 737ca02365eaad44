"""Several choices and logprobs through the official client, whole and streamed."""

import itertools
import math

import openai
import pytest

HELLO = [{"role": "user", "content": "Say hello in five words."}]
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def chat(client, model, **options):
    return client.chat.completions.create(
        **{"model": model, "messages": HELLO, "max_tokens": 12, "temperature": 0, **options})


def complete(client, model, **options):
    return client.completions.create(
        **{"model": model, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, **options})


def content(choice):
    return choice.message.content if hasattr(choice, "message") else choice.text


def by_choice(chunks):
    """The choices of the chunks of a stream, by index."""
    choices = sorted((c for chunk in chunks for c in chunk.choices), key=lambda c: c.index)
    return {index: list(group) for index, group in itertools.groupby(choices, lambda c: c.index)}


@pytest.mark.parametrize("ask", [chat, complete])
def test_each_choice_is_the_answer_of_its_seed(client, model, ask):
    drawn = {"temperature": 1, "top_p": 0.95}
    answer = ask(client, model, n=3, seed=40, **drawn)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    alone = [ask(client, model, seed=40 + i, **drawn) for i in range(3)]
    for choice, single in zip(answer.choices, alone):
        assert content(choice) == content(single.choices[0])
        assert choice.finish_reason == single.choices[0].finish_reason
    assert len({content(choice) for choice in answer.choices}) > 1
    assert answer.usage.prompt_tokens == alone[0].usage.prompt_tokens
    assert answer.usage.completion_tokens == sum(a.usage.completion_tokens for a in alone)
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_choices_without_a_seed_differ_and_can_be_had_again(client, model):
    answer = chat(client, model, n=4, temperature=1)
    assert len({content(choice) for choice in answer.choices}) > 1
    assert chat(client, model, n=4, temperature=1, seed=answer.seed).choices == answer.choices


def test_greedy_choices_are_equal(client, model):
    answer = chat(client, model, n=3, logprobs=True, top_logprobs=3)
    for choice in answer.choices[1:]:
        assert choice.message == answer.choices[0].message
        assert choice.logprobs == answer.choices[0].logprobs


@pytest.mark.parametrize("ask", [chat, complete])
def test_a_stream_of_choices_is_the_whole_answer_in_pieces(client, model, ask):
    options = {"n": 3, "seed": 5, "temperature": 1}
    whole = ask(client, model, **options)
    chunks = list(ask(client, model, **options, **STREAM))
    *_, last = chunks
    assert last.choices == [] and last.usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert {len(chunk.choices) for chunk in chunks[:-1]} == {1}
    streamed = by_choice(chunks)
    assert sorted(streamed) == [0, 1, 2]
    for index, pieces in streamed.items():
        reasons = [piece.finish_reason for piece in pieces]
        assert reasons == [None] * (len(pieces) - 1) + [whole.choices[index].finish_reason]
        if ask is chat:
            assert [piece.delta.role for piece in pieces] == ["assistant"] + [None] * (len(pieces) - 1)
            text = "".join(piece.delta.content or "" for piece in pieces)
        else:
            text = "".join(piece.text for piece in pieces)
        assert text == content(whole.choices[index])


def check_scores(entries):
    """Sane entries of a greedy answer with alternatives."""
    for entry in entries:
        logprobs = [other.logprob for other in entry.top_logprobs]
        assert logprobs == sorted(logprobs, reverse=True)
        assert all(-9999 <= logprob <= 0 for logprob in logprobs)
        assert sum(map(math.exp, logprobs)) < 1 + 1e-4
        best = entry.top_logprobs[0]
        assert (entry.token, entry.logprob, entry.bytes) == (best.token, best.logprob, best.bytes)
        assert bytes(entry.bytes).decode(errors="replace") == entry.token


def test_chat_logprobs(client, model):
    answer = chat(client, model, logprobs=True, top_logprobs=20)
    choice, = answer.choices
    entries = choice.logprobs.content
    ended = choice.finish_reason == "stop"  # by an end token, which has no score
    assert len(entries) == answer.usage.completion_tokens - ended
    assert all(len(entry.top_logprobs) == 20 for entry in entries)
    check_scores(entries)
    text = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace")
    assert text.endswith(choice.message.content)  # some tokenizers drop a first space
    assert len(text) - len(choice.message.content) <= 1
    # Twenty tokens hold most of what a model believes.
    assert sum(math.exp(other.logprob) for other in entries[0].top_logprobs) > 0.5


def test_logprobs_without_alternatives(client, model):
    entries = chat(client, model, logprobs=True).choices[0].logprobs.content
    scored = chat(client, model, logprobs=True, top_logprobs=1).choices[0].logprobs.content
    assert all(entry.top_logprobs == [] for entry in entries)
    assert [entry.logprob for entry in entries] == [entry.logprob for entry in scored]
    assert chat(client, model).choices[0].logprobs is None


def test_logprobs_are_the_models_own(client, model):
    """Sampling options change which token comes, not what the model thinks of it."""
    def first(**options):
        answer = chat(client, model, max_tokens=1, logprobs=True, top_logprobs=20, **options)
        return answer.choices[0].logprobs.content[0]

    plain = first()
    for options in ({"temperature": 2, "seed": 3}, {"top_p": 0.1, "temperature": 1},
                    {"logit_bias": {"65": 100}, "extra_body": {"repetition_penalty": 2}}):
        assert first(**options).top_logprobs == plain.top_logprobs
    forced = first(logit_bias={"65": 100})
    assert forced.token != plain.token
    assert forced.logprob < plain.logprob


def test_streamed_chat_logprobs_are_those_of_the_whole_answer(client, model):
    messages = [{"role": "user", "content": "Repeat exactly: naïve 日本語 🎉👩‍👩‍👧 Привет"}]
    options = {"messages": messages, "max_tokens": 32, "logprobs": True, "top_logprobs": 2,
               "stop": ["\0never", "🎉?"], "n": 2, "temperature": 0.5, "seed": 1}
    whole = chat(client, model, **options)
    streamed = by_choice(chat(client, model, **options, **STREAM))
    for index, pieces in streamed.items():
        assert pieces[0].logprobs is None and pieces[-1].logprobs is None
        entries = [entry for piece in pieces[1:-1] for entry in piece.logprobs.content]
        assert entries == whole.choices[index].logprobs.content


def test_stream_helper_of_the_client_collects_logprobs(client, model):
    stop = chat(client, model).choices[0].message.content[3:6]  # the helper wants it to end by stop
    with client.chat.completions.stream(model=model, messages=HELLO, max_tokens=12, temperature=0,
                                        stop=stop, n=2, logprobs=True, top_logprobs=2) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    whole = chat(client, model, stop=stop, n=2, logprobs=True, top_logprobs=2)
    assert len(final.choices) == 2
    for got, expected in zip(final.choices, whole.choices):
        assert got.message.content == expected.message.content
        assert got.logprobs.content == expected.logprobs.content


def test_completion_logprobs(client, model):
    choice = complete(client, model, logprobs=5).choices[0]
    scores = choice.logprobs
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs)
    assert len(scores.text_offset) == len(scores.tokens)
    for token, logprob, top, offset in zip(scores.tokens, scores.token_logprobs,
                                           scores.top_logprobs, scores.text_offset):
        assert 1 <= len(top) <= 5  # tokens that read the same share an entry
        assert logprob == top[token] == max(top.values())
        assert sum(map(math.exp, top.values())) < 1 + 1e-4
        if "\N{REPLACEMENT CHARACTER}" not in token and offset > 0:
            assert choice.text[offset:].startswith(token)
    assert scores.text_offset[0] == 0


def test_completion_logprobs_name_the_chosen_token(client, model):
    scores = complete(client, model, logprobs=1, temperature=2, seed=2).choices[0].logprobs
    for token, logprob, top in zip(scores.tokens, scores.token_logprobs, scores.top_logprobs):
        assert 1 <= len(top) <= 2
        assert token in top and logprob <= max(top.values())
    assert len(complete(client, model, logprobs=0).choices[0].logprobs.top_logprobs[0]) == 1
    assert complete(client, model).choices[0].logprobs is None


def test_streamed_completion_logprobs_are_those_of_the_whole_answer(client, model):
    options = {"prompt": "naïve 日本語 🎉👩‍👩‍👧 Привет", "logprobs": 2, "n": 2, "seed": 1,
               "temperature": 0.7, "max_tokens": 24, "stop": ["\0never"]}
    whole = complete(client, model, **options)
    for index, pieces in by_choice(complete(client, model, **options, **STREAM)).items():
        scored = [piece.logprobs for piece in pieces if piece.logprobs is not None]
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            streamed = [entry for piece in scored for entry in getattr(piece, name)]
            assert streamed == getattr(whole.choices[index].logprobs, name)


def test_logprobs_of_an_answer_that_is_forced_are_finite(client, model):
    answer = chat(client, model, logit_bias={"65": 100}, logprobs=True, extra_body={"ignore_eos": True})
    assert len(answer.choices[0].logprobs.content) == 12
    assert all(-9999 <= entry.logprob <= 0 for entry in answer.choices[0].logprobs.content)


@pytest.mark.parametrize("ask, param, fields", [
    (chat, "top_logprobs", {"top_logprobs": 1}),
    (chat, "top_logprobs", {"top_logprobs": 1, "logprobs": False}),
    (chat, "top_logprobs", {"top_logprobs": 21, "logprobs": True}),
    (chat, "logprobs", {"logprobs": 5}),
    (complete, "logprobs", {"logprobs": 21}),
    (complete, "logprobs", {"logprobs": True}),
    (complete, "best_of", {"n": 2, "best_of": 3}),
    (chat, "n", {"n": 33}),  # more than the rows of this server
    (complete, "n", {"n": 129}),
])
def test_bad_values_name_their_field(client, model, ask, param, fields):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, extra_body=fields)
    assert caught.value.param == param


def test_leaving_a_stream_frees_every_choice(client, model):
    for _ in range(3):
        stream = chat(client, model, n=8, stream=True, max_tokens=1500, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
    assert chat(client, model, n=32, max_tokens=1).choices
