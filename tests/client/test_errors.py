"""Every 4xx has the shape that clients read, names its field, and leaves the server serving."""

import contextlib
import http.client
import json
import socket
import struct
import time

import openai
import pytest

MESSAGES = [{"role": "user", "content": "Hi"}]


def chat(client, model, **fields):
    extra = fields.pop("extra_body", {})
    return client.chat.completions.create(
        **{"model": model, "messages": MESSAGES, "max_tokens": 1, **fields}, extra_body=extra)


def check_shape(error):
    assert set(error.body) == {"message", "type", "param", "code"}
    assert error.body["message"]
    assert "0x" not in error.body["message"]


@pytest.mark.parametrize("param, value", [
    ("temperature", 3), ("temperature", -1), ("temperature", "1"), ("temperature", 1e308),
    ("top_p", 0), ("top_p", 1.5), ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", "5"),
    ("max_tokens", 2**63), ("max_tokens", 1.5), ("max_tokens", True), ("seed", 2**64),
    ("seed", 0.5), ("stop", ""), ("stop", ["a"] * 17), ("stop", "x" * 5000),
    ("presence_penalty", 3), ("frequency_penalty", -3), ("logit_bias", {"-1": 1}),
    ("logit_bias", {"99999999": 1}), ("logit_bias", {str(i): 1 for i in range(2000)}),
    ("n", 129), ("n", 0), ("n", True), ("logprobs", 1), ("top_logprobs", 5), ("top_logprobs", 21),
    ("tools", [{"type": "function"}]),
    ("tool_choice", "required"), ("response_format", {"type": "json_object"}),
    ("reasoning_effort", "high"), ("store", True), ("messages", []), ("messages", "hi"),
    ("stream", "yes"), ("unknown_field", 1), ("top_k", -2), ("min_p", 1.1), ("min_p", -0.5),
    ("repetition_penalty", 0), ("ignore_eos", "yes"), ("best_of", 4), ("audio", {"voice": "x"}),
    ("chat_template_kwargs", "x"), ("chat_template_kwargs", {"messages": []}),
])
def test_bad_value_names_its_field(client, model, param, value):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, model, extra_body={param: value})
    check_shape(caught.value)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param == param


@pytest.mark.parametrize("message, param", [
    ({"role": "robot", "content": "x"}, "messages[0].role"),
    ({"role": "tool", "content": "x", "tool_call_id": "1"}, "messages[0].role"),
    ({"role": "user"}, "messages[0].content"),
    ({"role": "user", "content": 5}, "messages[0].content"),
    ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
     "messages[0].content[0].type"),
])
def test_bad_message_names_its_place(client, model, message, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, model, messages=[message])
    check_shape(caught.value)
    assert caught.value.param == param


def test_part_type_is_named(client, model):
    with pytest.raises(openai.BadRequestError, match="image_url"):
        chat(client, model, messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:,"}}]}])


def test_unknown_model(client):
    for name in ("gpt-4", "../../etc/passwd", "x" * 4096, "", "a\0b"):
        with pytest.raises(openai.NotFoundError) as caught:
            chat(client, name)
        check_shape(caught.value)
        assert caught.value.code == "model_not_found"
        assert caught.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_context_is_never_exceeded_silently(client, model):
    for fields in ({"max_tokens": 10**9}, {"max_tokens": 2**63 - 1}):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, model, **fields)
        check_shape(caught.value)
        assert caught.value.code == "context_length_exceeded"
        assert str(fields["max_tokens"]) in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=[65] * 300_000)
    assert caught.value.code == "context_length_exceeded"
    assert "300000" in caught.value.message


def test_a_prompt_that_no_context_holds_is_refused_at_once(client, model):
    text = "hello wo " * (31_000_000 // 9)
    begin = time.monotonic()
    for field, ask in (
            ("messages", lambda: chat(client, model, messages=[{"role": "user", "content": text}])),
            ("prompt", lambda: client.completions.create(model=model, prompt=text))):
        with pytest.raises(openai.BadRequestError) as caught:
            ask()
        check_shape(caught.value)
        assert caught.value.code == "context_length_exceeded"
        assert caught.value.param == field
        assert str(len(text)) in caught.value.message
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("prompt", [
    [], [[]], ["a", "b"], [[65], [66]], [-1], [10**8], [65, "a"], 5, "", [65.5],
])
def test_bad_prompt(client, model, prompt):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt="x", extra_body={"prompt": prompt})
    check_shape(caught.value)
    assert caught.value.param.startswith("prompt")


def raw(server, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=30)
    connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
    response = connection.getresponse()
    return response.status, json.loads(response.read()), response.headers


@pytest.mark.parametrize("status, method, path, body, headers", [
    (400, "POST", "/v1/chat/completions", "{", {}),
    (400, "POST", "/v1/chat/completions", "[" * 100_000, {}),
    (400, "POST", "/v1/chat/completions", b'{"a":"\xff"}', {}),
    (400, "POST", "/v1/chat/completions", '{"temperature":NaN}', {}),
    (404, "GET", "/v1/nothing", None, {}),
    (404, "GET", "//v1/models", None, {}),
    (405, "GET", "/v1/chat/completions", None, {}),
    (405, "DELETE", "/v1/models", None, {}),
    (415, "POST", "/v1/chat/completions", "{}", {"Content-Type": "text/plain"}),
    (415, "POST", "/v1/chat/completions", "{}", {"Content-Encoding": "gzip"}),
    (403, "GET", "/v1/models", None, {"Host": "evil.com"}),
    (403, "GET", "/v1/models", None, {"Origin": "http://evil.com"}),
    (403, "GET", "/v1/models", None, {"Origin": "null"}),
    (413, "POST", "/v1/chat/completions", None, {"Content-Length": str(100 << 20)}),
    (431, "GET", "/health", None, {"X-Large": "x" * 70_000}),
])
def test_http_errors_have_the_same_shape(server, client, status, method, path, body, headers):
    got, reply, reply_headers = raw(server, method, path, body, headers)
    assert got == status
    assert set(reply["error"]) == {"message", "type", "param", "code"}
    assert ("Allow" in reply_headers) == (status == 405)


def test_a_disconnect_frees_the_server(server, client, model):
    body = json.dumps({"model": model, "messages": MESSAGES, "stream": True, "max_tokens": 1500,
                       "ignore_eos": True}).encode()
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    for _ in range(8):
        connection = socket.create_connection((server.host, server.port))
        connection.sendall(head + body)
        while b"data: " not in connection.recv(65536):
            pass
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    begin = time.monotonic()
    chat(client, model, max_tokens=1)
    assert time.monotonic() - begin < 5


def test_requests_that_left_the_queue_cost_nothing(server, client, model):
    def send(max_tokens):
        body = json.dumps({"model": model, "messages": MESSAGES, "max_tokens": max_tokens,
                           "ignore_eos": True}).encode()
        head = ("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n")
        connection = socket.create_connection((server.host, server.port))
        connection.sendall(head.encode() + body)
        return connection

    rows = [send(4000) for _ in range(32)]
    time.sleep(1)
    waiting = [send(1) for _ in range(520)]  # more than may wait
    time.sleep(2)
    for connection in waiting:
        connection.close()
    time.sleep(1)
    for connection in rows:
        connection.close()
    begin = time.monotonic()
    served = False
    while not served:  # neither 429 for long nor behind 512 prompts that nobody waits for
        with contextlib.suppress(openai.RateLimitError):  # until the iteration of 32 rows is over
            served = bool(chat(client, model).choices)
        assert time.monotonic() - begin < 15
        time.sleep(0.1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_has_no_more_to_send_gets_its_answer(server, client, model, stream):
    body = json.dumps({"model": model, "messages": MESSAGES, "stream": stream, "max_tokens": 8}).encode()
    head = (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(head + body)
        connection.shutdown(socket.SHUT_WR)
        response = http.client.HTTPResponse(connection)
        response.begin()  # passes over 100 Continue, with which the server asks who is there
        assert response.status == 200
        text = response.read().decode()
    assert text.endswith("data: [DONE]\n\n") if stream else json.loads(text)["choices"]


def test_leaving_a_stream_of_the_client(client, model):
    for _ in range(3):
        stream = chat(client, model, stream=True, max_tokens=1500, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
    assert chat(client, model).choices


def test_streams_refuse_before_they_start(client, model):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, model, stream=True, temperature=9)
    assert caught.value.param == "temperature"


def test_a_tiny_repetition_penalty_is_no_broken_model(client, model):
    for penalty in (1e-38, 1e-44):
        answer = chat(client, model, extra_body={"repetition_penalty": penalty})
        assert answer.usage.completion_tokens == 1


def test_an_unknown_name_is_quoted_as_valid_json(server, client):
    for path, shown in (("%F0%28%8C", "\\xf0(\\x8c"), ("a%00b", "a\\x00b")):
        response = client._client.get(f"{server.url}/v1/models/{path}")
        assert response.status_code == 404
        assert shown in json.loads(response.content.decode())["error"]["message"]
