"""Completions, models and health through the official client."""

import urllib.request


def ask(client, model, prompt="Once upon a time", **options):
    return client.completions.create(model=model, prompt=prompt,
                                     **{"max_tokens": 8, "temperature": 0, **options})


def test_answer(client, model):
    answer = ask(client, model)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.choices[0].text
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.usage.total_tokens == (answer.usage.prompt_tokens +
                                         answer.usage.completion_tokens)


def test_stream_equals_the_whole_answer(client, model):
    whole = ask(client, model)
    chunks = list(ask(client, model, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].usage == whole.usage
    assert chunks[-1].choices == []


def test_special_tokens_of_a_raw_prompt_are_special(client, model):
    assert ask(client, model, "<|im_start|>", max_tokens=1).usage.prompt_tokens == 1


def test_prompt_forms(client, model):
    assert ask(client, model, ["Once upon a time"]).choices == ask(client, model).choices
    ids = [72, 101, 108, 108, 111]
    flat = ask(client, model, ids)
    assert flat.usage.prompt_tokens == len(ids)
    assert ask(client, model, [ids]).choices == flat.choices


def test_ignore_eos_runs_to_max_tokens(client, model):
    answer = ask(client, model, "Hi", max_tokens=60, extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 60
    assert answer.choices[0].finish_reason == "length"


def test_extensions(client, model):
    plain = ask(client, model).choices
    off = ask(client, model, extra_body={"top_k": 0, "min_p": 0, "repetition_penalty": 1})
    assert off.choices == plain
    # One candidate is left, so that the temperature has nothing to choose from.
    one = ask(client, model, temperature=1,
              logit_bias={"65": 100}, extra_body={"top_k": 1, "ignore_eos": True})
    assert one.choices[0].text == one.choices[0].text[:len(one.choices[0].text) // 8] * 8


def test_models(client, model):
    listed = client.models.list()
    assert listed.object == "list"
    for entry in listed.data:
        assert entry.object == "model"
        assert client.models.retrieve(entry.id) == entry


def test_health(client, server):
    with urllib.request.urlopen(server.url + "/health") as response:
        assert response.status == 200
        assert response.read() == b'{"status":"ok"}'
