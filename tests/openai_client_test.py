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


def main():
    program, path = sys.argv[1:3]
    if not Path(path).exists():
        print(f"skipped: there is no {path}")
        return SKIPPED
    # A template that knows marks of reasoning, else the model's own habits.
    server = subprocess.Popen([program, "serve", path, "--port", "0", "-c", "1024", "-np", "2", "--log-disable"] + sys.argv[3:], stderr=subprocess.PIPE, text=True)
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
