"""The openai client against `assay serve`: structured output with pydantic, tools, tool_choice, streamed calls, reasoning.

Usage: openai_client_test.py PROGRAM MODEL.gguf. Exit code 77 (skipped) where the client or the model is missing."""
import json
import os
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import List, Optional

SKIPPED = 77
try:
    import openai
    from pydantic import BaseModel, Field
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (python3 -m pip install openai)")
    sys.exit(SKIPPED)


class Colour(str, Enum):
    red = "red"
    green = "green"


class Part(BaseModel):
    name: str = Field(max_length=12)
    count: int = Field(ge=0, le=20)


class Thing(BaseModel):
    title: str = Field(max_length=20)
    colour: Colour
    weight: Optional[float]
    parts: List[Part] = Field(max_length=2)


TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["city", "days"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "add", "description": "The sum of numbers", "parameters": {
        "type": "object", "properties": {"values": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3}},
        "required": ["values"], "additionalProperties": False}}},
]
QUESTION = [{"role": "user", "content": "What is the weather in Ulm for the next 3 days?"}]
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def arguments_of(call):
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert set(arguments) == {"city", "days"} and 1 <= arguments["days"] <= 7 and isinstance(arguments["city"], str), arguments
    else:
        assert call.function.name == "add" and all(0 <= v <= 99 for v in arguments["values"]), arguments
    return arguments


@check
def pydantic_models_are_parsed(client, model):
    answer = client.beta.chat.completions.parse(model=model, messages=[{"role": "user", "content": "Describe a toy car."}], response_format=Thing, seed=1, max_tokens=400)
    thing = answer.choices[0].message.parsed
    assert isinstance(thing, Thing) and len(thing.title) <= 20 and len(thing.parts) <= 2, thing


@check
def json_objects_are_objects(client, model):
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "A short JSON object, please."}], response_format={"type": "json_object"},
                                            seed=2, max_tokens=60, temperature=0)
    choice = answer.choices[0]
    assert choice.message.content.startswith("{")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)


@check
def required_calls_come(client, model):
    for choice in ("required", {"type": "function", "function": {"name": "add"}}):
        answer = client.chat.completions.create(model=model, messages=QUESTION, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, seed=3, max_tokens=200)
        message = answer.choices[0].message
        assert answer.choices[0].finish_reason == "tool_calls" and len(message.tool_calls) == 1, answer
        arguments_of(message.tool_calls[0])
        assert choice == "required" or message.tool_calls[0].function.name == "add"


@check
def none_means_text(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, tools=TOOLS, tool_choice="none", seed=3, max_tokens=8)
    assert not answer.choices[0].message.tool_calls and answer.choices[0].message.content


@check
def streams_tell_the_same(client, model):
    asked = dict(model=model, messages=QUESTION, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=4, max_tokens=200)
    whole = client.chat.completions.create(**asked).choices[0].message.tool_calls[0]
    name, arguments, n_pieces = None, "", 0
    for chunk in client.chat.completions.create(stream=True, **asked):
        for call in chunk.choices[0].delta.tool_calls or []:
            if name is None:
                assert call.id and call.function.name, call  # id and name first
                name = call.function.name
            n_pieces += bool(call.function.arguments)
            arguments += call.function.arguments or ""
    assert (name, arguments) == (whole.function.name, whole.function.arguments) and n_pieces > 1, (name, arguments)


@check
def the_stream_helper_parses_tools(client, model):
    with client.beta.chat.completions.stream(model=model, messages=QUESTION, tools=[openai.pydantic_function_tool(Part, name="keep")], tool_choice="required",
                                             parallel_tool_calls=False, seed=5, max_tokens=200) as stream:
        for _ in stream:
            pass
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert isinstance(call.function.parsed_arguments, Part), call


@check
def calls_and_results_go_back(client, model):
    call = client.chat.completions.create(model=model, messages=QUESTION, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=6, max_tokens=200).choices[0].message
    history = QUESTION + [call, {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "sunny"}]
    assert client.chat.completions.create(model=model, messages=history, tools=TOOLS, seed=6, max_tokens=8).choices[0].message is not None
    broken = call.model_dump(exclude_none=True)
    broken["tool_calls"][0]["function"]["arguments"] = '{"city": '
    try:
        client.chat.completions.create(model=model, messages=QUESTION + [broken] + history[-1:], tools=TOOLS, max_tokens=1)
    except openai.BadRequestError:
        pass  # or it is served; never another error


@check
def refusals_name_their_field(client, model):
    for changed, param in ((dict(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": True}}}), "response_format.json_schema.schema"),
                           (dict(tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "not": {}}}}]), "tools[0].function.parameters.not"),
                           (dict(tool_choice="required"), "tool_choice"), (dict(reasoning_effort="low"), "reasoning_effort")):
        try:
            client.chat.completions.create(model=model, messages=QUESTION, max_tokens=1, **changed)
        except openai.BadRequestError as error:
            assert error.param == param, (error.param, param)
        else:
            raise AssertionError(f"{param} was served")


@check
def reasoning_is_apart(client, model):
    asked = dict(model=model, messages=QUESTION, seed=7, max_tokens=100, extra_body={"grammar": 'root ::= "<think>" [a-z ]{3,9} "</think>" "Yes."'})
    answer = client.chat.completions.create(**asked)
    message = answer.choices[0].message
    if message.content == "Yes.":  # where the template knows marks
        assert 3 <= len(message.model_extra["reasoning_content"]) <= 9 and answer.usage.completion_tokens_details.reasoning_tokens > 0
        streamed = "".join((c.choices[0].delta.model_extra or {}).get("reasoning_content", "") for c in client.chat.completions.create(stream=True, **asked) if c.choices)
        assert streamed == message.model_extra["reasoning_content"]
    else:
        assert message.content.endswith("</think>Yes."), message


RESPONSE_TOOLS = [{"type": "function", **t["function"]} for t in TOOLS]


@check
def responses_are_as_chat(client, model):
    asked = dict(model=model, temperature=0, seed=1)
    answer = client.responses.create(model=model, input="Name a colour.", instructions="Be brief.", temperature=0, max_output_tokens=12, extra_body={"seed": 1})
    chat = client.chat.completions.create(messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a colour."}], max_tokens=12, **asked)
    assert answer.output_text == chat.choices[0].message.content and answer.output_text, (answer, chat)
    assert answer.usage.input_tokens == chat.usage.prompt_tokens and answer.usage.output_tokens == chat.usage.completion_tokens
    assert answer.status == ("incomplete" if chat.choices[0].finish_reason == "length" else "completed")
    again = client.responses.create(model=model, input=[{"role": "user", "content": "Name a colour."}] + answer.output + [{"role": "user", "content": "And another."}], max_output_tokens=4)
    assert again.output and not again.store


@check
def response_streams_tell_the_same(client, model):
    asked = dict(model=model, input="Count to five.", temperature=0, max_output_tokens=20, include=["message.output_text.logprobs"], top_logprobs=2)
    whole = client.responses.create(**asked)
    events = list(client.responses.create(stream=True, **asked))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == f"response.{whole.status}", [e.type for e in events]
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text == events[-1].response.output_text
    assert len(whole.output[0].content[0].logprobs) > 3 and len(whole.output[0].content[0].logprobs[0].top_logprobs) == 2


@check
def response_helpers_parse(client, model):
    answer = client.responses.parse(model=model, input="Describe a toy car.", text_format=Thing, max_output_tokens=400, extra_body={"seed": 1})
    assert isinstance(answer.output_parsed, Thing), answer
    with client.responses.stream(model=model, input="Describe a wheel.", text_format=Part, max_output_tokens=200, extra_body={"seed": 2}) as stream:
        for _ in stream:
            pass
        assert isinstance(stream.get_final_response().output_parsed, Part)


@check
def response_calls_come_and_go_back(client, model):
    asked = dict(model=model, input=QUESTION, tools=RESPONSE_TOOLS, tool_choice="required", parallel_tool_calls=False, max_output_tokens=200, extra_body={"seed": 3})
    answer = client.responses.create(**asked)
    call = next(item for item in answer.output if item.type == "function_call")
    json.loads(call.arguments)
    events = list(client.responses.create(stream=True, **asked))
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert len(pieces) > 1 and "".join(pieces) == call.arguments, (pieces, call)
    named = client.responses.create(**{**asked, "tool_choice": {"type": "function", "name": "add"}})
    assert [i.name for i in named.output if i.type == "function_call"] == ["add"]
    history = QUESTION + answer.output + [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    assert client.responses.create(model=model, input=history, tools=RESPONSE_TOOLS, max_output_tokens=8).output


@check
def responses_store_nothing(client, model):
    for changed, param in ((dict(store=True), "store"), (dict(previous_response_id="resp_1"), "previous_response_id"), (dict(tools=[{"type": "web_search"}]), "tools[0].type"),
                           (dict(truncation="auto"), "truncation"), (dict(background=True), "background")):
        try:
            client.responses.create(model=model, input="a", max_output_tokens=1, **changed)
        except openai.BadRequestError as error:
            assert error.param == param, (error.param, param)
        else:
            raise AssertionError(f"{param} was served")


@check
def other_endpoints_answer(client, model):
    assert client.completions.create(model=model, prompt="The sea", max_tokens=3, logprobs=1).choices[0].logprobs.tokens
    assert "".join(c.choices[0].text for c in client.completions.create(model=model, prompt="The sea", max_tokens=3, stream=True) if c.choices)
    assert client.models.retrieve(model).id == model
    chunks = list(client.chat.completions.create(model=model, messages=QUESTION, max_tokens=3, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.completion_tokens == 3 and chunks[-1].usage.completion_tokens_details is not None
    vectors = [client.embeddings.create(model=model, input=["a shoal of fish"], encoding_format=form).data[0].embedding for form in ("float", "base64")]
    assert len(vectors[0]) > 0 and len(vectors[1]) > 0


def main():
    program, path = sys.argv[1:3]
    if not Path(path).exists():
        print(f"skipped: there is no {path}")
        return SKIPPED
    # A template that knows marks of reasoning, else the model's own habits.
    server = subprocess.Popen([program, "serve", path, "--port", "0", "-c", "1024", "-np", "2", "--pooling", "mean", "--log-disable"] + sys.argv[3:], stderr=subprocess.PIPE, text=True)
    try:
        line = server.stderr.readline()
        port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        assert port, line
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port[1]}/v1", api_key="none", max_retries=0, timeout=300)
        model = client.models.list().data[0].id
        only = os.environ.get("ONLY", "")
        for function in CHECKS:
            if only in function.__name__:
                function(client, model)
                print(f"ok: {function.__name__}", flush=True)
    finally:
        server.terminate()
        server.wait(timeout=60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
