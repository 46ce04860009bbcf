"""The Python module against the program and against itself. ASSAY_TEST_MODEL: a small model; ASSAY_TEST_PROGRAM: the program built with it."""
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import assay

MODEL = os.environ["ASSAY_TEST_MODEL"]
PROGRAM = os.environ["ASSAY_TEST_PROGRAM"]
IDS = [1, 259, 260, 100, 101, 102, 200]


@pytest.fixture(scope="module")
def model():
    return assay.Model(MODEL)


def program(*arguments):
    return json.loads(subprocess.run([PROGRAM, *arguments, "--json"], check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout)


def logits_of_program(*more):
    return program("logits", MODEL, "--ids", ",".join(map(str, IDS)), *more)


def test_a_model_says_what_it_is(model):
    assert (model.architecture, model.vocab_size, model.n_layers, model.path) == ("llama", 262, 2, MODEL)
    assert "talker" in repr(model) and "{%" in model.chat_template
    assert assay.__version__ == subprocess.run([PROGRAM, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]


def test_tokens_are_the_programs(model):
    text = "the sea, \u00e9"
    ids = model.tokenize(text)
    assert ids == program("tokenize", MODEL, "-p", text)["ids"] and ids[0] == model.bos
    assert model.detokenize(ids) == text
    assert model.tokenize(text, add_bos=False) == ids[1:]
    assert model.detokenize(np.array(ids, dtype=np.int64)) == text
    assert model.detokenize([3 + 0xC3]) == "\ufffd"
    with pytest.raises(UnicodeDecodeError):
        model.detokenize([3 + 0xC3], errors="strict")


@pytest.mark.parametrize("options, flags", [({}, []), ({"n_threads": 1, "n_ubatch": 2}, []), ({"numerics": "f32"}, ["--numerics", "f32"]),
                                            ({"numerics": "oracle"}, ["--numerics", "oracle"])])
def test_logits_have_the_programs_bits(model, options, flags):
    context = assay.Context(model, n_ctx=16, **options)
    logits = context.logits(IDS)
    said = logits_of_program(*flags)
    assert logits.shape == (len(IDS), model.vocab_size)
    assert logits.dtype == (np.float64 if options.get("numerics") == "oracle" else np.float32)
    assert (context.logits_digest(), context.kv_digest()) == (said["logits_digest"], said["kv_digest"])
    best = np.argsort(-logits[-1], kind="stable")[:10]
    assert [[int(i), float(logits[-1, i])] for i in best] == said["top"]


def test_decoding_in_parts_and_in_batches_has_the_same_bits(model):
    context = assay.Context(model, n_ctx=16, n_sequences=2)
    whole = context.logits(IDS)
    context.clear()
    assert np.array_equal(context.decode(IDS[:4]), whole[3])
    batch = context.decode_batch([(IDS[0], 1), (IDS[4], 0)])
    assert np.array_equal(batch, whole[[0, 4]]) and context.n_past() == 5
    context.truncate(4)
    assert np.array_equal(context.decode(IDS[4:]), whole[6])


def test_an_answer_streams_and_repeats_with_its_seed(model):
    options = dict(max_tokens=20, seed=5, ignore_eos=True)
    stream = assay.generate(model, "the sea", n_ctx=64, **options)
    pieces = list(stream)
    assert "".join(pieces) == stream.result.text and len(pieces) > 3
    assert stream.result.finish_reason == "length" and len(stream.result.ids) == 20
    context = assay.Context(model, n_ctx=64)
    assert context.generate("the sea", **options).result.ids == stream.result.ids
    again = context.generate("the sea", **options).result
    assert again.ids == stream.result.ids and again.n_prompt_cached == again.n_prompt - 1
    said = program("run", MODEL, "-p", "the sea", "--no-chat-template", "-n", "20", "-s", "5", "--ignore-eos")
    assert said["ids"] == stream.result.ids
    banned = context.generate("the sea", logit_bias={again.ids[0]: float("-inf")}, **options).result
    assert again.ids[0] not in banned.ids


def test_a_chat_is_the_programs(model):
    chat = assay.Chat(model, "short", temperature=0, max_tokens=12, n_ctx=128)
    stream = chat.send("the sea")
    text = "".join(stream)
    said = program("run", MODEL, "-sys", "short", "-p", "the sea", "--temp", "0", "-n", "12", "-c", "128")
    assert stream.result.ids == said["ids"] and text == said["text"]
    assert [m["role"] for m in chat.messages] == ["user", "assistant"]
    saved = chat.save()
    assert "".join(chat.regenerate()) != None and chat.undo() and not chat.undo()
    chat.load(saved)
    assert chat.messages[1]["content"] == text
    assert assay.Chat(model).seed != assay.Chat(model).seed


def test_a_stream_that_is_dropped_or_closed_ends(model):
    chat = assay.Chat(model, n_ctx=512, ignore_eos=True)
    stream = chat.send("the sea")
    next(stream)
    with pytest.raises(assay.Error, match="in use") as caught:
        chat.clear()
    assert caught.value.code == "bad_request"
    stream.close()
    assert stream.result.finish_reason == "cancelled"
    chat.clear()
    for _ in chat.send("the sea"):
        break
    gc.collect()
    chat.clear()
    with chat.send("the sea") as stream:
        next(stream)
    chat.clear()


def test_a_real_model_by_its_name():
    """What docs/library.md begins with, word for word; the model is one of those that scripts/fetch-models fetches."""
    try:
        m = assay.Model("smollm2-135m-instruct-Q4_1")
    except assay.Error as error:
        pytest.skip(f"scripts/fetch-models fetches it: {error}")
    ids = m.tokenize("Hello world")
    assert ids == [19556, 905] and m.detokenize(ids) == "Hello world"
    context = assay.Context(m, n_ctx=512)
    logits = context.logits(ids)
    said = program("logits", m.path, "--ids", "19556,905")
    assert logits.dtype == np.float32 and logits.shape == (2, 49152) and context.logits_digest() == said["logits_digest"]
    stream = assay.Chat(m, system=None, temperature=0, max_tokens=8).send("Hi")
    text = "".join(piece for piece in stream)
    assert text == program("run", m.path, "-p", "Hi", "--temp", "0", "-n", "8")["text"] and stream.result.finish_reason == "length"


def test_errors_have_codes(model, tmp_path):
    with pytest.raises(assay.Error, match="no-such-model") as caught:
        assay.Model("no-such-model")
    assert caught.value.code == "io"
    assert pickle.loads(pickle.dumps(caught.value)).code == "io"
    (tmp_path / "page.gguf").write_text("<html>")
    with pytest.raises(assay.Error) as caught:
        assay.Model(tmp_path / "page.gguf")
    assert caught.value.code == "bad_file"
    context = assay.Context(model, n_ctx=4)
    for call in (lambda: context.logits(IDS), lambda: context.logits([[1, 2]]), lambda: context.logits([]), lambda: context.decode([10**6]),
                 lambda: assay.Context(model, numerics="sloppy"), lambda: context.generate("a" * 99).result, lambda: context.generate([1], top_p=-1)):
        with pytest.raises(assay.Error) as caught:
            call()
        assert caught.value.code == "bad_request"
    for wrong in ({"n_ctxx": 5}, {"n_ctx": "many"}, {"n_ctx": 1.5}, {"n_threads": 2**40}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            assay.Context(model, **wrong)


def test_long_calls_leave_other_threads_running(model):
    context = assay.Context(model, n_ctx=2048, n_threads=1)
    ticks, is_over = [], threading.Event()

    def tick():
        while not is_over.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.monotonic()
    context.logits(np.full(2000, 100))
    end = time.monotonic()
    is_over.set()
    thread.join()
    assert sum(start < t < end for t in ticks) >= 3


def test_verify_and_perplexity(model):
    report = assay.verify(model, quick=True)
    assert {s.id for s in report.stages} >= {"file", "tokenizer", "ops", "logits"}
    assert json.loads(report.to_json()) and report.to_html().startswith("<!")
    stages = {s.id: s.verdict for s in report.stages}
    assert stages["ops"] == "pass" and stages["logits"] == "pass"
    text = "the sea " * 40
    found = assay.perplexity(assay.Context(model, n_ctx=32), text, base=assay.Context(model, n_ctx=32, cache_k="q8_0"), n_chunk=32)
    assert found.perplexity > 1 and found.kl_divergence > 0 and found.n_chunks >= 2


@pytest.mark.parametrize("work", ["for piece in assay.generate(model, 'a', n_ctx=60000, ignore_eos=True, max_tokens=50000): say(piece)",
                                  "say('x'); assay.Context(model, n_ctx=60000, n_ubatch=16).logits(np.full(60000, 100))"])
def test_control_c_ends_long_calls(work):
    code = f"""
import numpy as np, assay
def say(text): print("going", flush=True)
model = assay.Model({MODEL!r})
try:
    {work}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "going\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.read().endswith("interrupted\n")
        assert child.wait(60) == 0
