"""The server's page in headless Chromium: type, stream, stop, reload with history, markup that stays text, no request elsewhere,
no error in the console, contrast, names of controls, what is sent, the keyboard alone, the question for a key.

Usage: page_test.py PROGRAM MODEL.gguf [--pictures FOLDER]. Needs chromium and the Python package playwright (which brings no browser
of its own here); exit code 77 where one of them is missing."""
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

SKIPPED = 77
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    print("skipped: playwright is not installed (python3 -m pip install playwright)")
    sys.exit(SKIPPED)

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> **bold** `<b>`"

# WCAG's contrast of every text that is seen, against the nearest ground behind it.
CONTRAST = """() => {
  const channel = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const parts = s => s.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest('.unseen, noscript')) continue;
    let ground = e, colour;
    do { colour = parts(getComputedStyle(ground).backgroundColor); ground = ground.parentElement; } while (ground && colour.length === 4 && colour[3] === 0);
    const a = luminance(parts(getComputedStyle(e).color)), b = luminance(colour);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${e.tagName} "${e.textContent.trim().slice(0, 30)}": ${ratio.toFixed(2)}`);
  }
  return bad;
}"""

UNNAMED = """() => [...document.querySelectorAll('button, input, textarea, select, a')].filter(e => e.checkVisibility()).filter(e =>
  !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim())).map(e => e.outerHTML)"""


def until(page, holds, what):
    """Polls from here: the page's policy lets no script be made of a text, which the driver's own waiting would do."""
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end, what
        page.wait_for_timeout(50)


def ask(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")


def wait_for_answer(page):
    until(page, lambda: page.locator("#stop").is_hidden(), "the answer's end")


def watched(page, base):
    """What a page must not do: errors in the console, requests elsewhere."""
    errors, elsewhere = [], []
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("request", lambda r: None if r.url.startswith((base, "data:", "blob:")) else elsewhere.append(r.url))
    return errors, elsewhere


def sent_by(page, act):
    """The body of the request for an answer that `act` makes."""
    with page.expect_request(lambda r: r.url.endswith("/v1/chat/completions")) as request:
        act()
    return json.loads(request.value.post_data)


def use_keyboard(page):
    """What is sent, and a conversation by keys alone: Shift+Enter breaks the line, Enter sends, Escape stops."""
    page.get_by_role("button", name="New conversation").click()
    page.get_by_label("System prompt").fill("Answer in one word.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Tokens at most").fill("2000")
    page.get_by_label("Tokens at most").blur()
    box = page.get_by_label("Message", exact=True)
    box.focus()
    page.keyboard.type("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    assert box.input_value() == "one\ntwo" and page.locator("#messages > li").count() == 0
    body = sent_by(page, lambda: page.keyboard.press("Enter"))
    assert body["messages"] == [{"role": "system", "content": "Answer in one word."}, {"role": "user", "content": "one\ntwo"}], body
    assert body["temperature"] == 0.5 and body["seed"] == 7 and body["max_tokens"] == 2000 and "top_k" not in body, body
    assert page.locator("#messages").get_attribute("aria-busy") == "true"
    page.keyboard.press("Escape")  # perhaps before the first token
    wait_for_answer(page)
    assert page.locator("#messages").get_attribute("aria-busy") == "false"
    assert page.get_by_role("status").filter(has_text="Stopped.").count() == 1  # what a screen reader says

    page.get_by_label("Tokens at most").fill("6")
    page.get_by_label("Tokens at most").blur()
    box.focus()
    page.keyboard.type("Again.")
    body = sent_by(page, lambda: page.keyboard.press("Enter"))
    assert [m["role"] for m in body["messages"]] == ["system", "user", "assistant", "user"], body
    wait_for_answer(page)
    answer = page.locator("#messages > li.assistant").last
    assert "cut" in answer.inner_text(), answer.inner_text()
    assert page.get_by_role("status").filter(has_text="Answer:").count() == 1
    assert "tokens/s" in page.locator("#figures").inner_text()
    for name in ("Probabilities", "Regenerate", "Copy"):  # all of them by Tab
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == name:
                break
        else:
            raise AssertionError(f"Tab does not come to {name}")
    page.get_by_label("System prompt").fill("")
    page.get_by_label("System prompt").blur()


def ask_for_key(page, base):
    errors, elsewhere = watched(page, base)
    page.goto(base)
    dialog = page.get_by_role("dialog", name="This server needs a key")
    for key in ("wrong", "sesame"):
        until(page, dialog.is_visible, "the question for a key")
        page.get_by_label("Key", exact=True).fill(key)
        page.keyboard.press("Enter")
    until(page, lambda: page.title() != "assay", "the model's name")
    page.get_by_label("Tokens at most").fill("3")
    page.get_by_label("Tokens at most").blur()
    ask(page, "Hi")
    wait_for_answer(page)
    assert "tokens" in page.locator("#messages > li.assistant").inner_text()
    assert "sesame" not in page.evaluate("JSON.stringify(localStorage)"), "the key is kept"
    assert elsewhere == [] and all("401" in e for e in errors), (elsewhere, errors)


def drive(page, base, pictures):
    errors, elsewhere = watched(page, base)
    headers = page.goto(base).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'"), headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"] and headers["x-content-type-options"] == "nosniff", headers
    until(page, lambda: page.title() != "assay", "the model's name")
    title = page.title()
    limit = page.get_by_label("Tokens at most")
    limit.fill("24")
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Seed").blur()

    ask(page, "Name three colours.")
    wait_for_answer(page)
    answers = page.locator("#messages > li.assistant")
    first = answers.nth(0).locator(".text").inner_text()
    assert first.strip(), "an answer"
    assert "seed 7" in answers.nth(0).inner_text()
    assert "positions" in page.locator("#figures").inner_text()

    answers.nth(0).get_by_role("button", name="Probabilities").click()
    token = answers.nth(0).locator(".tokens span").first
    token.hover()
    assert "%" in page.locator("#tip").inner_text()
    if pictures:
        page.screenshot(path=pictures / "page-probabilities.png")
    answers.nth(0).get_by_role("button", name="Probabilities").click()

    answers.nth(0).get_by_role("button", name="Regenerate").click()
    wait_for_answer(page)
    assert page.locator("#messages > li.assistant .text").inner_text() == first, "the same seed gives the same answer"

    limit.fill("2000")
    limit.blur()
    ask(page, "Tell me a long story.")
    until(page, lambda: answers.count() == 2 and len(answers.nth(1).locator(".text").inner_text()) > 5, "a stream")
    page.get_by_role("button", name="Stop").click()
    wait_for_answer(page)
    assert "stopped" in answers.nth(1).inner_text(), answers.nth(1).inner_text()

    limit.fill("8")
    limit.blur()
    ask(page, HOSTILE)
    wait_for_answer(page)
    mine = page.locator("#messages > li.user").last
    assert "<img src=x" in mine.inner_text() and mine.locator("img, script").count() == 0
    assert mine.locator("strong").inner_text() == "bold" and mine.locator("code").inner_text() == "<b>"
    assert page.title() == title

    page.reload()
    until(page, lambda: page.title() == title, "the page again")
    assert page.locator("#messages > li").count() == 6, "history"
    assert page.locator("#messages > li.assistant .text").first.inner_text() == first
    page.locator("#messages > li.user").last.get_by_role("button", name="Edit").click()
    assert page.get_by_label("Message", exact=True).input_value() == HOSTILE and page.locator("#messages > li").count() == 4
    with page.expect_download() as export:
        page.get_by_role("button", name="Export all").click()
    assert "Name three colours." in Path(export.value.path()).read_text(encoding="utf-8")
    page.get_by_label("Message", exact=True).fill("")
    use_keyboard(page)
    page.get_by_role("button", name="Name three colours.", exact=True).click()

    for scheme, size in (("light", (1100, 760)), ("dark", (1100, 760)), ("dark", (390, 760))):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": size[0], "height": size[1]})
        assert page.evaluate(CONTRAST) == [], (scheme, size, page.evaluate(CONTRAST))
        assert page.evaluate(UNNAMED) == [], page.evaluate(UNNAMED)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the screen"
        if pictures:
            page.screenshot(path=pictures / f"page-{scheme if size[0] > 500 else 'phone'}.png")
    page.get_by_role("button", name="Menu").click()
    assert page.get_by_role("button", name="New conversation").is_visible()
    page.keyboard.press("Escape")
    assert elsewhere == [], elsewhere
    assert errors == [], errors


def main():
    program, model = sys.argv[1:3]
    pictures = Path(sys.argv[4]) if "--pictures" in sys.argv else None
    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser_path is None or not Path(model).exists():
        print(f"skipped: there is no {'chromium' if browser_path is None else model}")
        return SKIPPED
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for flags, use in (([], lambda page, base: drive(page, base, pictures)), (["--api-key", "sesame"], ask_for_key)):
            server = subprocess.Popen([program, "serve", model, "--port", "0", "-c", "4096", "-np", "1", "--log-disable", *flags], stderr=subprocess.PIPE, text=True)
            try:
                line = server.stderr.readline()
                port = re.search(r"http://127\.0\.0\.1:(\d+)", line)
                assert port, line
                page = browser.new_context(viewport={"width": 1100, "height": 760}).new_page()
                page.set_default_timeout(60_000)
                use(page, f"http://127.0.0.1:{port[1]}/")
            finally:
                server.terminate()
                server.wait(timeout=60)
        browser.close()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
