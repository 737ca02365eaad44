"""Chat completions through the official client."""

import re

HELLO = [{"role": "user", "content": "Say hello in five words."}]


def ask(client, model, **options):
    options = {"messages": HELLO, "max_tokens": 16, "temperature": 0, **options}
    return client.chat.completions.create(model=model, **options)


def test_answer(client, model):
    answer = ask(client, model)
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == model
    choice, = answer.choices
    assert choice.index == 0
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 16
    assert usage.prompt_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 <= usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens


def test_stream_equals_the_whole_answer(client, model):
    whole = ask(client, model)
    chunks = list(ask(client, model, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[:-1] == [None] * (len(chunks) - 1)
    assert reasons[-1] == whole.choices[0].finish_reason
    assert all(chunk.usage is None for chunk in chunks)


def test_stream_with_usage(client, model):
    whole = ask(client, model)
    *chunks, last = ask(client, model, stream=True, stream_options={"include_usage": True})
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage == whole.usage


def test_stream_helper_of_the_client(client, model):
    stop = ask(client, model).choices[0].message.content[3:6]  # the helper wants it to end by stop
    with client.chat.completions.stream(model=model, messages=HELLO, max_tokens=16, temperature=0,
                                        stop=stop) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == ask(
        client, model, stop=stop).choices[0].message.content


def test_max_tokens(client, model):
    for option in ("max_tokens", "max_completion_tokens"):
        answer = ask(client, model, **{"max_tokens": None, option: 3},
                     extra_body={"ignore_eos": True})
        assert answer.usage.completion_tokens == 3
        assert answer.choices[0].finish_reason == "length"


def test_what_a_developer_says_is_the_system_to_a_template_that_knows_no_developer(client, model):
    def told_by(role):
        messages = [{"role": role, "content": "Answer in French."}, {"role": "user", "content": "Hi"}]
        answer = client.chat.completions.create(model=model, messages=messages, temperature=0,
                                                max_tokens=8)
        return answer.usage.prompt_tokens, answer.choices[0].message.content

    assert told_by("developer") == told_by("system")


def test_stop_string_ends_the_answer_before_it(client, model):
    whole = ask(client, model).choices[0].message.content
    stop = whole[3:6]
    before = whole[:whole.index(stop)]
    answer = ask(client, model, stop=stop)
    assert answer.choices[0].message.content == before
    assert answer.choices[0].finish_reason == "stop"
    streamed = ask(client, model, stop=["\0never", stop], stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in streamed) == before


def test_same_seed_same_answer(client, model):
    def text(seed):
        answer = ask(client, model, temperature=1, seed=seed, extra_body={"ignore_eos": True})
        assert answer.system_fingerprint == f"cohort-seed-{seed % 2**64}"
        assert answer.seed == seed % 2**64
        return answer.choices[0].message.content

    assert text(7) == text(7)
    assert len({text(seed) for seed in range(4)}) > 1
    assert text(-2) == text(2**64 - 2)


def test_a_fresh_seed_is_reported_and_reproduces(client, model):
    first = ask(client, model, temperature=1)
    again = ask(client, model, temperature=1, seed=first.seed)
    assert again.choices[0].message.content == first.choices[0].message.content
    assert ask(client, model, temperature=1).seed != first.seed


def test_logit_bias_forces_a_token(client, model):
    def text(token):
        answer = ask(client, model, logit_bias={str(token): 100}, max_tokens=4,
                     extra_body={"ignore_eos": True})
        return answer.choices[0].message.content

    first, second = text(65), text(66)
    assert first != second
    for forced in (first, second):
        assert forced == forced[:len(forced) // 4] * 4


def test_text_parts_roles_and_names(client, model):
    answer = ask(client, model, messages=[
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "ann",
         "content": [{"type": "text", "text": "Hi."}, {"type": "text", "text": "Who?"}]},
        {"role": "assistant", "content": "Me."},
        {"role": "user", "content": "Thanks."}])
    assert answer.choices[0].message.content


def test_an_answer_can_be_sent_back_as_the_client_holds_it(client, model):
    answer = ask(client, model)
    ask(client, model, messages=HELLO + [answer.choices[0].message,
                                         {"role": "user", "content": "Again."}])
    dumped = answer.choices[0].message.model_dump()
    ask(client, model, messages=HELLO + [dumped, {"role": "user", "content": "Again."}])


def test_fields_that_change_nothing(client, model):
    plain = ask(client, model).choices[0].message.content
    same = ask(client, model, n=1, user="u", metadata={"a": "b"}, store=False, logprobs=False,
               service_tier="auto", tools=[], tool_choice="none", parallel_tool_calls=True,
               response_format={"type": "text"}, modalities=["text"], safety_identifier="u",
               prompt_cache_key="k", reasoning_effort="none", presence_penalty=0,
               frequency_penalty=0, top_p=1, logit_bias={}, stop=None, seed=None)
    assert same.choices[0].message.content == plain


def test_utf8_is_never_split(client, model):
    messages = [{"role": "user", "content": "Repeat exactly: naïve 日本語 🎉👩‍👩‍👧 Привет"}]
    whole = ask(client, model, messages=messages, max_tokens=64).choices[0].message.content
    pieces = [chunk.choices[0].delta.content or ""
              for chunk in ask(client, model, messages=messages, max_tokens=64, stream=True)]
    assert "".join(pieces) == whole
    assert not re.search("[\ud800-\udfff]", whole)


def test_names_of_the_model(client, model):
    for name in [entry.id for entry in client.models.list().data]:
        assert ask(client, name, max_tokens=1).model == name
