"""Drives `akunu serve` with OpenAI's, Anthropic's and Ollama's clients, and runs the examples of docs/server.md.

    python clients.py AKUNU

Everything runs against tiny random models on a loopback port, so texts mean nothing; what counts is that clients
understand the answers. Speech alone is heard by Whisper's smallest model, from the test data ($AKUNU_TEST_DATA).
"""

import json
import os
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import anthropic
import httpx
import ollama
import openai

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("AKUNU_TEST_DATA", ROOT / "target/test-data"))
SPEECH = DATA / "models/whisper-tiny.bin"
ENCODER = ROOT / "crates/akunu-program/tests/fixtures/encoders/bert/model.gguf"
# Its context has room for definitions of tools.
MODEL = ROOT / "crates/akunu-program/tests/fixtures/tiny/phi3-longrope/model.gguf"
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]
CITY = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"], "additionalProperties": False}
# The random model must not end its text by accident.
GO_ON = {"2": -100}


def start(binary, *more):
    """The server and its address."""
    command = [binary, "serve", f"smollm2={MODEL}", f"encoder={ENCODER}", f"ear={SPEECH}", "--chat-template", "chatml", "--port", "0", "--log", "off", *more]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        found = re.search(r"https?://\S+", line)
        if found:
            return server, found.group()
    sys.exit("the server did not start")


def drive_openai(address):
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=30)
    assert [model.id for model in client.models.list()] == ["ear", "encoder", "smollm2"]
    assert client.models.retrieve("smollm2").owned_by == "akunu"

    ask = dict(model="smollm2", messages=MESSAGES, max_tokens=20, seed=3, logit_bias=GO_ON)
    whole = client.chat.completions.create(**ask, n=2, logprobs=True, top_logprobs=3)
    text = whole.choices[0].message.content
    assert text and len(whole.choices) == 2 and whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 40
    assert whole.usage.prompt_tokens_details.cached_tokens == 0
    logprobs = whole.choices[0].logprobs.content
    assert len(logprobs) == 20 and len(logprobs[0].top_logprobs) == 3

    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.completion_tokens == 20
    # The helper takes a text that was cut off for an error.
    stop = text[len(text) // 2 :][:2]
    with client.chat.completions.stream(**ask, stop=stop) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.content == text[: text.find(stop)]

    completion = client.completions.create(model="smollm2", prompt="Once", max_tokens=5, logprobs=2, logit_bias=GO_ON)
    assert completion.usage.completion_tokens == 5 and len(completion.choices[0].logprobs.tokens) == 5
    pieces = client.completions.create(model="smollm2", prompt="Once", max_tokens=5, stream=True)
    assert [piece.choices[0].finish_reason for piece in pieces][-1] in ("stop", "length")

    response = client.responses.create(model="smollm2", instructions="Be brief.", input="Hello!", max_output_tokens=9)
    assert response.output_text or response.status == "completed"
    events = list(client.responses.create(model="smollm2", input="Hello!", max_output_tokens=9, stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type in ("response.completed", "response.incomplete")
    assert events[-1].response.usage.output_tokens <= 9

    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    whole = client.chat.completions.create(**dict(ask, max_tokens=60, response_format=form))
    assert list(json.loads(whole.choices[0].message.content)) == ["city"], whole

    call_tools_openai(client)
    embed_openai(client)
    listen_openai(client)
    refusals = [
        (openai.NotFoundError, dict(ask, model="gpt-4o"), "model_not_found"),
        (openai.BadRequestError, dict(ask, extra_body={"mirostat": 2}), "unknown_parameter"),
        (openai.BadRequestError, dict(ask, messages=[{"role": "user", "content": "a " * 9000}]), "context_length_exceeded"),
    ]
    for kind, wrong, code in refusals:
        try:
            client.chat.completions.create(**wrong)
        except kind as error:
            assert error.code == code, error
        else:
            raise AssertionError(f"{code} was not raised")


def call_tools_openai(client):
    """A tool is called, whole and streamed, in both interfaces, and what it says is taken."""
    ask = dict(model="smollm2", max_tokens=200, seed=3, logit_bias=GO_ON)
    weather = {"type": "function", "function": {"name": "weather", "description": "The weather in a city", "parameters": CITY}}
    named = {"type": "function", "function": {"name": "weather"}}
    for choice in ["required", named]:
        asked = dict(ask, messages=MESSAGES, tools=[weather], tool_choice=choice)
        answer = client.chat.completions.create(**asked).choices[0]
        (call,) = answer.message.tool_calls
        assert answer.finish_reason == "tool_calls" and call.function.name == "weather"
        assert list(json.loads(call.function.arguments)) == ["city"]
        with client.chat.completions.stream(**asked) as stream:
            for _ in stream:
                pass
            (streamed,) = stream.get_final_completion().choices[0].message.tool_calls
        assert streamed.function.arguments == call.function.arguments
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages = [*MESSAGES, answer.message, result]
    after = client.chat.completions.create(**dict(ask, max_tokens=9), messages=messages, tools=[weather], tool_choice="none")
    assert after.choices[0].message.content and not after.choices[0].message.tool_calls

    ask = dict(model="smollm2", max_output_tokens=200, tools=[{"type": "function", **weather["function"]}])
    response = client.responses.create(**ask, input="Hello!", tool_choice="required")
    (call,) = response.output
    assert call.type == "function_call" and list(json.loads(call.arguments)) == ["city"]
    with client.responses.stream(**ask, input="Hello!", tool_choice="required") as stream:
        for _ in stream:
            pass
        (streamed,) = stream.get_final_response().output
    assert list(json.loads(streamed.arguments)) == ["city"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    said = client.responses.create(**ask, input=[{"role": "user", "content": "Hello!"}, call, output], tool_choice="none")
    assert said.output[0].type == "message"


def listen_openai(client):
    """Whisper's smallest model hears a speech."""
    sound = (DATA / "audio/jfk.wav").read_bytes()
    ask = dict(model="ear", language="en", file=("jfk.wav", sound))
    whole = client.audio.transcriptions.create(**ask)
    assert "what your country can do for you" in whole.text and whole.usage.seconds == 11, whole
    verbose = client.audio.transcriptions.create(**ask, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    assert verbose.language == "english" and verbose.segments[0].end > 1 and len(verbose.words) > 15, verbose
    assert client.audio.transcriptions.create(**ask, response_format="vtt").startswith("WEBVTT")
    assert "-->" in client.audio.transcriptions.create(**ask, response_format="srt")
    events = list(client.audio.transcriptions.create(**ask, stream=True))
    assert events[-1].type == "transcript.text.done" and events[-1].text == whole.text
    del ask["language"]
    assert "country" in client.audio.translations.create(**ask).text
    try:
        client.audio.transcriptions.create(model="ear", file=("noise.wav", b"no sound"))
    except openai.BadRequestError as error:
        assert error.code == "invalid_audio", error
    else:
        raise AssertionError("noise was transcribed")


def embed_openai(client):
    """The client asks for base64 unless told otherwise, and decodes it."""
    texts = ["Hello!", "Good bye!"]
    packed = client.embeddings.create(model="smollm2", input=texts)
    plain = client.embeddings.create(model="smollm2", input=texts, encoding_format="float")
    assert packed.usage.prompt_tokens == plain.usage.prompt_tokens > 0
    for one, other in zip(packed.data, plain.data, strict=True):
        assert max(abs(a - b) for a, b in zip(one.embedding, other.embedding, strict=True)) < 1e-6
        assert abs(sum(number * number for number in one.embedding) - 1) < 1e-5
    tokens = client.embeddings.create(model="encoder", input=[[1, 2, 3], [4, 5]], dimensions=8)
    assert [len(entry.embedding) for entry in tokens.data] == [8, 8]
    try:
        client.chat.completions.create(model="encoder", messages=MESSAGES)
    except openai.BadRequestError as error:
        assert error.code == "model_not_supported", error
    else:
        raise AssertionError("an encoder was asked to chat, and did")


def drive_anthropic(address):
    client = anthropic.Anthropic(base_url=address, api_key="none", max_retries=0, timeout=30)
    ask = dict(model="smollm2", max_tokens=20, system="Be brief.", messages=MESSAGES[1:], temperature=0)
    message = client.messages.create(**ask)
    assert message.role == "assistant" and message.stop_reason in ("end_turn", "max_tokens")
    text = message.content[0].text
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == text
        final = stream.get_final_message()
    assert final.usage.output_tokens == message.usage.output_tokens
    assert final.stop_reason == message.stop_reason
    weather = {"name": "weather", "description": "The weather in a city", "input_schema": CITY}
    asked = dict(ask, max_tokens=200, tools=[weather])
    called = client.messages.create(**asked, tool_choice={"type": "any"})
    (call,) = called.content
    assert called.stop_reason == "tool_use" and call.type == "tool_use" and list(call.input) == ["city"]
    with client.messages.stream(**asked, tool_choice={"type": "tool", "name": "weather"}) as stream:
        for _ in stream:
            pass
        assert stream.get_final_message().content[0].input == call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    messages = [*ask["messages"], {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    after = client.messages.create(**dict(asked, messages=messages, max_tokens=9), tool_choice={"type": "none"})
    assert after.content[0].type == "text"
    counted = client.messages.count_tokens(model="smollm2", system="Be brief.", messages=MESSAGES[1:])
    assert counted.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens
    try:
        client.messages.create(**dict(ask, model="nobody"))
    except anthropic.NotFoundError as error:
        assert error.body["error"]["type"] == "not_found_error"
    else:
        raise AssertionError("an unknown model was served")


def drive_ollama(address):
    client = ollama.Client(host=address)
    assert [model.model for model in client.list().models] == ["ear", "encoder", "smollm2"]
    ask = dict(model="smollm2", messages=MESSAGES, options={"num_predict": 20, "temperature": 0})
    whole = client.chat(**ask)
    assert whole.done and whole.eval_count <= 20
    assert "".join(part.message.content for part in client.chat(**ask, stream=True)) == whole.message.content
    weather = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
    assert client.chat(**ask, tools=[weather]).done
    assert len(client.embed(model="smollm2", input=["Hello", "Bye"]).embeddings) == 2
    assert client.embeddings(model="smollm2", prompt="Hello").embedding
    assert client.generate(model="smollm2", prompt="Hello", options={"num_predict": 3}).done
    try:
        client.chat(**dict(ask, model="nobody"))
    except ollama.ResponseError as error:
        assert error.status_code == 404
    else:
        raise AssertionError("an unknown model was served")


def drive_tls(binary):
    """A client that trusts the certificate is answered, one that does not refuses."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = f"{folder}/cert.pem", f"{folder}/key.pem"
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext", names]
        subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        server, address = start(binary, "--tls-cert", certificate, "--tls-key", key)
        try:
            assert address.startswith("https://")
            trusting = httpx.Client(verify=ssl.create_default_context(cafile=certificate))
            client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, http_client=trusting)
            stream = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=5, stream=True)
            assert list(stream)[-1].choices[0].finish_reason
            try:
                httpx.get(f"{address}/health")
            except httpx.ConnectError:
                pass
            else:
                raise AssertionError("a certificate nobody signed was trusted")
        finally:
            server.kill()


def stop_under_load(server, address):
    """SIGTERM while many are being answered: every answer that was taken in is complete."""
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60)
    ends, under_way = [], threading.Semaphore(0)

    def ask(seed):
        stream = client.chat.completions.create(
            model="smollm2", messages=MESSAGES, max_tokens=1000, seed=seed, logit_bias=GO_ON, stream=True)
        under_way.release()
        ends.append([chunk.choices[0].finish_reason for chunk in stream][-1])

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for _ in threads:
        under_way.acquire(timeout=60)
    server.terminate()
    assert server.wait(60) == 0, "the server did not end well"
    for thread in threads:
        thread.join(60)
    assert ends == ["length"] * 12, ends


def run_examples(address):
    """Runs the examples of the documentation in order, with the server's own address."""
    text = "".join((ROOT / "docs" / name).read_text() for name in ["server.md", "structured-output.md"])
    examples = re.findall(r"^```(sh|python)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    examples = [(language, example) for language, example in examples if "http://127.0.0.1:8080" in example]
    for language, example in examples:
        example = example.replace("http://127.0.0.1:8080", address)
        if language == "sh":
            command = ["bash", "-euo", "pipefail", "-c", example.replace("curl -s", "curl --fail -s")]
        else:
            command = [sys.executable, "-c", example]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, f"{example}\n{result.stdout}{result.stderr}"
        # A random model may end its text at once, but it says so.
        assert result.stdout or language == "python", example
    return len(examples)


def main():
    server, address = start(sys.argv[1])
    try:
        begin = time.time()
        drive_openai(address)
        drive_anthropic(address)
        drive_ollama(address)
        examples = run_examples(address)
        drive_tls(sys.argv[1])
        stop_under_load(server, address)
        print(f"three clients and {examples} examples of the documentation: {time.time() - begin:.1f} s")
    finally:
        server.kill()


main()
