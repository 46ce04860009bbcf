"""assay pull against a server that misbehaves. Only loopback addresses.   usage: pull_test.py PROGRAM [unittest arguments]
ASSAY_KILL_ROUNDS: how often a running pull is killed at a random moment (default 4)."""
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from faulty_server import Reply, Server, gguf, sha256  # noqa: E402

PROGRAM = sys.argv.pop(1)
CERTIFICATE = pathlib.Path(__file__).parent / 'data' / 'loopback.pem'
MODEL = gguf()
HALF = len(MODEL) // 2
SMALL, LARGE = gguf(n_floats=100), gguf(n_floats=300_000)


class Pull(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    def setUp(self):
        self.server.reset()
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.home = pathlib.Path(self.temporary.name)
        self.folder = self.home / 'models'

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if 'proxy' not in k.lower() and not k.startswith(('HF_', 'ASSAY_', 'OLLAMA_', 'XDG_', 'CURL_', 'SSL_'))}
        return {**kept, 'HOME': str(self.home), 'ASSAY_MODELS': str(self.folder), 'HF_ENDPOINT': self.server.url(), **more}

    def start(self, *arguments, command=('pull', '--retry-wait', '0.01'), **more):
        return subprocess.Popen([PROGRAM, *command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                text=True, env=self.environment(**more))

    def pull(self, *arguments, code=0, **more):
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, code, err)
        if code != 0:
            self.assertEqual(out, '')
        return out if code == 0 else err

    def left(self):
        return sorted(p.name for p in self.folder.iterdir()) if self.folder.exists() else []

    def assert_whole(self, name, data):
        self.assertEqual(sha256((self.folder / name).read_bytes()), sha256(data))
        self.assertFalse([n for n in self.left() if 'partial' in n], self.left())

    def ranges(self):
        return [headers.get('Range') for _, _, headers in self.server.requests]

    def assert_nothing_kept(self):
        self.assertEqual(self.left(), [])

    # --- what works

    def test_standard_output_is_the_path_alone(self):
        process = self.start(self.server.on('/m.gguf', Reply(MODEL)))
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, err), (0, f'{self.folder}/m.gguf\n', ''))
        self.assert_whole('m.gguf', MODEL)

    def test_json(self):
        result = json.loads(self.pull(self.server.on('/m.gguf', Reply(MODEL)), '--json', '--sha256', sha256(MODEL).upper()))
        self.assertEqual(result['path'], f'{self.folder}/m.gguf')
        self.assertEqual(result['files'][0]['sha256'], sha256(MODEL))
        self.assertEqual(result['fetched_bytes'], len(MODEL))
        shown = subprocess.run([PROGRAM, 'show', 'm', '--json'], capture_output=True, text=True, env=self.environment())
        shown = json.loads(shown.stdout)
        self.assertEqual(shown['from'], self.server.url('/m.gguf'))
        self.assertEqual(shown['sha256'], [sha256(MODEL)])
        self.assertTrue(shown['sha256_is_noted'])
        self.assertRegex(shown['fetched'], r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$')

    def test_a_split_model_by_the_address_of_a_part(self):
        parts = [gguf(seed=i) for i in range(3)]
        for i, data in enumerate(parts):
            self.server.on(f'/d/m-{i + 1:05}-of-00003.gguf', Reply(data))
        out = self.pull(self.server.url('/d/m-00002-of-00003.gguf?x=1'))
        self.assertEqual(out, f'{self.folder}/m-00001-of-00003.gguf\n')
        for i, data in enumerate(parts):
            self.assert_whole(f'm-{i + 1:05}-of-00003.gguf', data)

    def test_redirects_are_followed(self):
        other = Server()
        other.on('/files/x', Reply(MODEL))
        url = self.server.on('/m.gguf', Reply(status=302, headers={'Location': '/again'}))
        self.server.on('/again', Reply(b'moved', status=307, headers={'Location': other.url('/files/x')}))
        self.pull(url)
        self.assert_whole('m.gguf', MODEL)

    def test_a_length_that_is_not_announced(self):
        self.pull(self.server.on('/m.gguf', Reply(MODEL, length=-1)))
        self.assert_whole('m.gguf', MODEL)

    def test_a_proxy(self):
        self.server.routes['http://models.invalid/m.gguf'] = [Reply(MODEL)]
        self.pull('http://models.invalid/m.gguf', http_proxy=self.server.url())
        self.assert_whole('m.gguf', MODEL)

    # --- cuts, stalls and servers that are busy

    def test_goes_on_after_a_cut(self):
        self.pull(self.server.on('/m.gguf', Reply(MODEL, etag='"a"', cut=HALF), Reply(MODEL, etag='"a"')))
        self.assert_whole('m.gguf', MODEL)
        self.assertEqual(self.ranges(), [None, f'bytes={HALF}-'])
        self.assertEqual(self.server.requests[1][2]['If-Range'], '"a"')
        self.assertEqual(self.server.sent_bytes, len(MODEL))

    def test_goes_on_after_many_cuts(self):
        step = len(MODEL) // 15
        self.pull(self.server.on('/m.gguf', Reply(MODEL, etag='"a"', cut=step)))  # more than ten tries, each with a byte
        self.assert_whole('m.gguf', MODEL)

    def test_begins_anew_where_ranges_are_ignored(self):
        self.pull(self.server.on('/m.gguf', Reply(MODEL, etag='"a"', cut=HALF), Reply(MODEL, etag='"a"', ranges=False)))
        self.assert_whole('m.gguf', MODEL)

    def test_begins_anew_where_the_file_has_changed(self):
        other = gguf(seed=2)
        self.pull(self.server.on('/m.gguf', Reply(MODEL, etag='"a"', cut=HALF), Reply(other, etag='"b"')))
        self.assert_whole('m.gguf', other)

    def test_begins_anew_where_a_part_is_of_another_file(self):
        other = gguf(seed=2)
        wrong = Reply(other[HALF:], status=206, headers={'Content-Range': f'bytes {HALF}-{len(other) - 1}/{len(other)}'}, etag='"b"')
        self.pull(self.server.on('/m.gguf', Reply(MODEL, etag='"a"', cut=HALF), wrong, Reply(other, etag='"b"')))
        self.assert_whole('m.gguf', other)

    def test_begins_anew_where_the_server_gives_another_range(self):
        wrong = Reply(MODEL[10:], status=206, headers={'Content-Range': f'bytes 10-{len(MODEL) - 1}/{len(MODEL)}'}, etag='"a"')
        self.pull(self.server.on('/m.gguf', Reply(MODEL, etag='"a"', cut=HALF), wrong, Reply(MODEL, etag='"a"')))
        self.assert_whole('m.gguf', MODEL)

    def test_without_a_tag_or_digest_nothing_is_joined_after_a_kill(self):
        url = self.server.on('/m.gguf', Reply(MODEL, cut=HALF, stall=30))
        self.kill_once_it_has(url, HALF // 2)
        other = gguf(seed=2)
        self.server.on('/m.gguf', Reply(other))
        self.pull(url)
        self.assert_whole('m.gguf', other)

    def test_a_server_that_is_busy(self):
        self.pull(self.server.on('/m.gguf', Reply(status=500), Reply(status=502), Reply(status=408), Reply(MODEL)))
        self.assert_whole('m.gguf', MODEL)

    def test_waits_as_the_server_asks(self):
        later = time.strftime('%a, %d %b %Y %H:%M:%S GMT', time.gmtime(time.time() + 2))
        self.pull(self.server.on('/m.gguf', Reply(status=429, headers={'Retry-After': '1'}), Reply(status=503, headers={'Retry-After': later}), Reply(MODEL)))
        self.assert_whole('m.gguf', MODEL)
        times = [t for t, _, _ in self.server.requests]
        self.assertGreaterEqual(times[1] - times[0], 0.9)

    def test_does_not_wait_for_ever(self):
        err = self.pull(self.server.on('/m.gguf', Reply(status=503, headers={'Retry-After': '1000000000'})), code=6)
        self.assertIn('asks to wait 1000000000 s', err)

    def test_connects_again_after_silence(self):
        self.pull('--timeout', 0.5, self.server.on('/m.gguf', Reply(MODEL, etag='"a"', cut=HALF, stall=30), Reply(MODEL, etag='"a"')))
        self.assert_whole('m.gguf', MODEL)
        self.assertEqual(self.ranges(), [None, f'bytes={HALF}-'])

    def test_seconds_out_of_range(self):
        for flag, value in (('--timeout', '0'), ('--timeout', '86401'), ('--retry-wait', '-1'), ('--retry-wait', '3601')):
            self.assertIn(f'{flag} {value}: needs seconds', self.pull(flag, value, 'u/r', code=2))

    def test_a_fast_flow_that_slows_down_is_no_silence(self):
        model = gguf(n_floats=8_000_000)
        self.pull('--timeout', 2, self.server.on('/m.gguf', Reply(model, etag='"a"', trickle=(24 << 20, 14))))
        self.assert_whole('m.gguf', model)
        self.assertEqual(self.ranges(), [None])

    def test_ten_tries_without_a_byte(self):
        err = self.pull(self.server.on('/m.gguf', Reply(close=True)), code=6)
        self.assertEqual(len(self.server.requests), 10)
        self.assertIn('10 tries', err)
        self.assert_nothing_kept()

    def test_three_refused_connections(self):
        with socket.socket() as unused:
            unused.bind(('127.0.0.1', 0))
            begin = time.monotonic()
            process = self.start(f'http://127.0.0.1:{unused.getsockname()[1]}/m.gguf', command=('pull',))  # with the waits that it has
            _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 6)
        self.assertIn('3 tries', err)
        self.assertLess(time.monotonic() - begin, 15)  # 5 s; more on a machine with other things to do
        self.assert_nothing_kept()

    # --- several connections

    def test_several_connections_bring_each_byte_once(self):
        url = self.server.on('/m.gguf', Reply(LARGE, etag='"a"', rate=3_000_000))
        self.pull('--connections', 4, url)
        self.assert_whole('m.gguf', LARGE)
        self.assertEqual(self.server.sent_bytes, len(LARGE))
        self.assertGreater(self.server.n_at_once, 1)
        parts = sorted(tuple(map(int, r[6:].split('-'))) for r in self.ranges())
        self.assertEqual([begin for begin, _ in parts], [0, *(last + 1 for _, last in parts[:-1])])
        self.assertEqual(parts[-1][1], len(LARGE) - 1)
        self.assertTrue(json.loads(self.pull('--connections', 4, url, '--json'))['files'][0]['was_there'])

    def test_several_connections_of_a_small_an_empty_and_a_whole_file(self):
        self.pull('--connections', 8, self.server.on('/s.gguf', Reply(SMALL, etag='"a"')))
        self.assert_whole('s.gguf', SMALL)
        self.pull('--connections', 8, self.server.on('/e.gguf', Reply(b'', etag='"a"')), code=6)
        self.pull('--connections', 8, self.server.on('/w.gguf', Reply(LARGE, etag='"a"', ranges=False)))
        self.assert_whole('w.gguf', LARGE)
        self.assertEqual(self.server.sent_bytes, len(SMALL) + len(LARGE))
        for n in ('0', '33', 'x'):
            self.pull('--connections', n, self.server.url('/s.gguf'), code=2)

    def test_several_connections_to_a_repository_that_redirects(self):
        self.server.repository('u/r', {'m-Q4_K_M.gguf': LARGE})
        storage = Server()
        storage.on('/blob', Reply(LARGE, etag='"x"'))
        self.server.on('/u/r/resolve/main/m-Q4_K_M.gguf', Reply(status=302, headers={'Location': storage.url('/blob')}))
        self.pull('u/r', '--connections', 3, HF_TOKEN='hf_secret')
        self.assert_whole('m-Q4_K_M.gguf', LARGE)
        self.assertEqual({h.get('Authorization') for _, _, h in storage.requests}, {None})

    def test_several_connections_that_are_cut(self):
        self.pull('--connections', 4, self.server.on('/m.gguf', Reply(LARGE, etag='"a"', cut=50_000)))
        self.assert_whole('m.gguf', LARGE)
        self.assertEqual(self.server.sent_bytes, len(LARGE))

    def test_several_connections_where_the_server_wants_one(self):
        self.pull('--connections', 4, self.server.on('/m.gguf', Reply(LARGE, etag='"a"', at_once=1, rate=20_000_000)))
        self.assert_whole('m.gguf', LARGE)

    def test_several_connections_where_the_file_changes_meanwhile(self):
        other = gguf(n_floats=300_000, seed=2)
        self.pull('--connections', 4, self.server.on('/m.gguf', Reply(LARGE, etag='"a"'), Reply(LARGE, etag='"a"'), Reply(other, etag='"b"')))
        self.assert_whole('m.gguf', other)

    def test_several_connections_need_a_way_to_tell_that_parts_belong_together(self):
        process = self.start('--connections', 4, self.server.on('/m.gguf', Reply(LARGE)))
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn('one connection fetches it', err)
        self.assert_whole('m.gguf', LARGE)

    def test_several_connections_that_end_or_are_refused(self):
        err = self.pull('--connections', 3, self.server.on('/m.gguf', Reply(LARGE, etag='"a"'), Reply(close=True)), code=6)
        self.assertIn('10 tries', err)
        self.pull('--connections', 3, self.server.on('/n.gguf', Reply(LARGE, etag='"a"'), Reply(status=403)), code=6)
        self.assertEqual([n for n in self.left() if not n.startswith('.')], ['m.gguf.partial', 'n.gguf.partial'])

    def test_several_connections_that_fall_silent(self):
        url = self.server.on('/m.gguf', *[Reply(LARGE, etag='"a"', cut=80_000, stall=30)] * 3, Reply(LARGE, etag='"a"'))
        self.pull('--connections', 3, '--timeout', 0.5, url)
        self.assert_whole('m.gguf', LARGE)

    def test_several_connections_go_on_after_a_kill(self):
        url = self.server.on('/m.gguf', Reply(LARGE, etag='"a"', rate=400_000))
        process = self.start('--connections', 4, url)
        self.wait_for_partial(300_000)
        process.kill()
        process.communicate(timeout=30)
        self.server.on('/m.gguf', Reply(LARGE, etag='"a"'))
        before = self.server.sent_bytes
        self.pull('--connections', 4, url)
        self.assert_whole('m.gguf', LARGE)
        self.assertLess(self.server.sent_bytes - before, len(LARGE) - 250_000)

    # --- what is refused

    def test_a_wrong_digest(self):
        wanted = sha256(b'other')
        err = self.pull('--sha256', wanted, self.server.on('/m.gguf', Reply(MODEL)), code=6)
        self.assertIn(wanted, err)
        self.assertIn(sha256(MODEL), err)
        self.assert_nothing_kept()

    def test_bytes_that_were_changed_on_the_way(self):
        wrong = bytearray(MODEL)
        wrong[-1] ^= 1
        self.server.repository('u/r', {'m-Q4_K_M.gguf': bytes(wrong)}, record={'m-Q4_K_M.gguf': sha256(MODEL)})
        err = self.pull('u/r', code=6)
        self.assertIn(sha256(MODEL), err)
        self.assertIn(sha256(bytes(wrong)), err)
        self.assert_nothing_kept()

    def test_a_page_to_log_in(self):
        err = self.pull(self.server.on('/m.gguf', Reply(b'<!DOCTYPE html><title>Log in</title>', headers={'Content-Type': 'text/html'})), code=6)
        self.assertIn('no GGUF file', err)
        self.assertIn('text/html', err)
        self.assert_nothing_kept()

    def test_a_file_that_is_cut_at_its_source(self):
        err = self.pull(self.server.on('/m.gguf', Reply(MODEL[:HALF])), code=6)
        self.assertIn('no whole GGUF file', err)
        self.assert_nothing_kept()

    def test_an_empty_file(self):
        self.pull(self.server.on('/m.gguf', Reply(b'')), code=6)
        self.assert_nothing_kept()

    def test_ten_terabytes(self):
        err = self.pull(self.server.on('/m.gguf', Reply(MODEL, length=10**13, cut=1000)), code=1)
        self.assertIn('needs 10000000000000 bytes', err)
        self.assert_nothing_kept()

    def test_another_size_than_on_record(self):
        self.server.repository('u/r', {'m-Q4_K_M.gguf': MODEL})
        self.server.on('/u/r/resolve/main/m-Q4_K_M.gguf', Reply(MODEL, length=10**13, cut=1000))
        self.assertIn('its record of the file says', self.pull('u/r', code=6))
        self.assert_nothing_kept()

    def test_access_denied(self):
        self.assertIn('HF_TOKEN', self.pull(self.server.on('/m.gguf', Reply(status=403)), code=6))
        self.assertIn('404', self.pull(self.server.url('/none.gguf'), code=6))
        self.assertEqual(len(self.server.requests), 2)  # no tries that cannot help

    def test_compressed_replies(self):
        err = self.pull(self.server.on('/m.gguf', Reply(MODEL, headers={'Content-Encoding': 'gzip'})), code=6)
        self.assertIn('gzip', err)
        self.assert_nothing_kept()

    def test_redirects_without_end(self):
        self.assertIn('more than 10 times', self.pull(self.server.on('/m.gguf', Reply(status=302, headers={'Location': '/m.gguf'})), code=6))

    def test_redirects_elsewhere(self):
        for location in ('file:///etc/passwd', 'ftp://127.0.0.1/m.gguf', 'gopher://127.0.0.1/'):
            url = self.server.on('/m.gguf', Reply(status=302, headers={'Location': location}))
            self.pull(url, code=6)
            self.assert_nothing_kept()

    def test_a_head_without_end(self):
        self.assertIn('head of more than', self.pull(self.server.on('/m.gguf', Reply(MODEL, headers={f'X-{i}': 'x' * 1000 for i in range(300)})), code=6))

    def test_from_https_to_http(self):
        secure = Server(CERTIFICATE)
        self.server.on('/m.gguf', Reply(MODEL))
        url = secure.on('/m.gguf', Reply(status=302, headers={'Location': self.server.url('/m.gguf')}))
        err = self.pull(url, code=6, SSL_CERT_FILE=str(CERTIFICATE))
        self.assertIn('from https to', err)
        self.assertEqual(self.server.requests, [])
        self.assert_nothing_kept()
        self.pull(secure.on('/n.gguf', Reply(MODEL)), SSL_CERT_FILE=str(CERTIFICATE))
        self.assert_whole('n.gguf', MODEL)
        self.pull(secure.url('/n.gguf'), '--as', 'o', code=6)  # a certificate that nobody vouches for

    # --- names

    def test_names_stay_in_the_folder(self):
        for path in ('/..%2f..%2fx.gguf', '/%2Ftmp%2Fx.gguf', '/x%0A.gguf', '/.x.gguf', '/', '/x.bin'):
            self.server.on(path, Reply(MODEL))
            self.assertIn('--as', self.pull(self.server.url(path), code=2))
        self.pull(self.server.on('/m.gguf', Reply(MODEL, headers={'Content-Disposition': 'attachment; filename="../evil.gguf"'})))
        self.assertEqual([n for n in self.left() if not n.startswith('.')], ['m.gguf'])
        for name in ('../x', '/tmp/x', '.x', 'a/b', ''):
            self.pull('--as', name, self.server.url('/m.gguf'), code=2 if name else 0)
        self.pull('--as', 'other', self.server.on('/x.bin', Reply(MODEL)))
        self.assert_whole('other.gguf', MODEL)

    def test_other_schemes(self):
        for what in ('ftp://127.0.0.1/m.gguf', 'file:///etc/passwd', 'nonsense', '../x'):
            self.pull(what, code=2)

    # --- Hugging Face

    def test_quantisations(self):
        files = {'m-Q8_0.gguf': gguf(seed=1), 'm-Q4_K_M.gguf': gguf(seed=2), 'sub/m-Q2_K.gguf': gguf(seed=3)}
        self.server.repository('u/r', files)
        self.assertEqual(self.pull('u/r'), f'{self.folder}/m-Q4_K_M.gguf\n')
        self.assertEqual(self.pull('hf.co/u/r:q8_0'), f'{self.folder}/m-Q8_0.gguf\n')
        self.assertEqual(self.pull('u/r:Q2_K'), f'{self.folder}/m-Q2_K.gguf\n')
        self.assert_whole('m-Q2_K.gguf', files['sub/m-Q2_K.gguf'])
        err = self.pull('u/r:Q6_K', code=2)
        self.assertIn('Q4_K_M, Q8_0, Q2_K', err)
        for name in ('u/r:Q8_0', 'u/r:q2_k'):  # what was pulled has that name
            shown = subprocess.run([PROGRAM, 'show', name, '--json'], capture_output=True, text=True, env=self.environment())
            self.assertEqual(json.loads(shown.stdout)['repository'], 'u/r', shown.stderr)

    def test_the_nearest_is_said(self):
        self.server.repository('u/r', {'m-Q8_0.gguf': gguf(seed=1), 'm-Q4_0.gguf': gguf(seed=2)})
        process = self.start('u/r')
        out, err = process.communicate(timeout=60)
        self.assertEqual(out, f'{self.folder}/m-Q4_0.gguf\n')
        self.assertIn('has no Q4_K_M; taking Q4_0', err)

    def test_a_short_name(self):
        self.server.repository('bartowski/SmolLM2-135M-Instruct-GGUF', {'SmolLM2-135M-Instruct-Q4_K_M.gguf': MODEL})
        self.pull('smollm2')
        shown = subprocess.run([PROGRAM, 'show', 'smollm2', '--json'], capture_output=True, text=True, env=self.environment())
        self.assertEqual(json.loads(shown.stdout)['name'], 'SmolLM2-135M-Instruct-Q4_K_M')

    def test_all_parts(self):
        parts = {f'm-Q8_0-{i + 1:05}-of-00002.gguf': gguf(seed=i) for i in range(2)}
        self.server.repository('u/r', parts)
        self.assertEqual(self.pull('u/r:Q8_0'), f'{self.folder}/m-Q8_0-00001-of-00002.gguf\n')
        for name, data in parts.items():
            self.assert_whole(name, data)

    def test_hostile_lists(self):
        for text in (b'<html>', b'{}', b'[' * 100000, b'[{"type":"file","path":"../../evil.gguf","size":1}]', b' ' * (17 << 20)):
            self.server.on('/api/models/u/r/tree/main', Reply(text))
            self.pull('u/r', code=6)
        self.assert_nothing_kept()
        self.assertIn('no such repository', self.pull('u/other', code=6))

    def test_lists_of_several_pages(self):
        self.server.repository('u/r', {'m-Q8_0.gguf': MODEL})
        page = self.server.routes['/api/models/u/r/tree/main'][0]
        self.server.on('/api/models/u/r/tree/main', Reply(b'[]', headers={'Link': f'<{self.server.url("/page2")}>; rel="next"'}))
        self.server.on('/page2', page)
        self.pull('u/r:Q8_0')
        self.assert_whole('m-Q8_0.gguf', MODEL)
        elsewhere = Server()
        self.server.on('/page2', Reply(b'[]', headers={'Link': f'<{elsewhere.url("/page3")}>; rel="next"'}))
        self.assertIn('another server', self.pull('u/r:Q8_0', code=6))
        self.server.on('/page2', Reply(b'[]', headers={'Link': f'<{self.server.url("/page2")}>; rel="next"'}))
        self.assertIn('pages', self.pull('u/r:Q8_0', code=6))

    def test_the_token_goes_to_its_host_alone(self):
        self.server.repository('u/r', {'m-Q4_K_M.gguf': MODEL})
        storage = Server()
        storage.on('/blob', Reply(MODEL))
        self.server.on('/u/r/resolve/main/m-Q4_K_M.gguf', Reply(status=302, headers={'Location': storage.url('/blob')}))
        self.pull('u/r', HF_TOKEN='hf_secret')
        self.assertEqual({h.get('Authorization') for _, _, h in self.server.requests}, {'Bearer hf_secret'})
        self.assertEqual([h.get('Authorization') for _, _, h in storage.requests], [None])
        self.pull(storage.on('/n.gguf', Reply(MODEL)), HF_TOKEN='hf_secret')
        self.assertEqual([h.get('Authorization') for _, _, h in storage.requests], [None, None])
        self.assertNotIn('hf_secret', ''.join(p.read_text(errors='replace') for p in self.folder.iterdir() if p.name.startswith('.')))
        self.pull('u/r', code=2, HF_TOKEN='a\nX-Evil: b')

    # --- what is there already

    def test_what_is_right_is_not_fetched_again(self):
        self.server.repository('u/r', {'m-Q4_K_M.gguf': MODEL})
        self.pull('u/r')
        before = self.server.sent_bytes
        result = json.loads(self.pull('u/r', '--json'))
        self.assertTrue(result['files'][0]['was_there'])
        self.assertLess(self.server.sent_bytes - before, 1000)  # the list

    def test_an_address_is_asked_whether_its_file_has_changed(self):
        url = self.server.on('/m.gguf', Reply(MODEL, etag='"a"'))
        self.pull(url)
        self.assertTrue(json.loads(self.pull(url, '--json'))['files'][0]['was_there'])
        other = gguf(seed=2)
        self.server.on('/m.gguf', Reply(other, etag='"b"'))
        self.assertFalse(json.loads(self.pull(url, '--json'))['files'][0]['was_there'])
        self.assert_whole('m.gguf', other)

    def test_another_file_is_not_written_over(self):
        self.folder.mkdir()
        (self.folder / 'm.gguf').write_bytes(b'mine')
        self.assertIn('is there already', self.pull(self.server.on('/m.gguf', Reply(MODEL)), code=2))
        self.assertIn('is there already', self.pull('--sha256', sha256(MODEL), self.server.url('/m.gguf'), code=2))
        self.assertEqual((self.folder / 'm.gguf').read_bytes(), b'mine')
        self.pull('--as', 'theirs', self.server.url('/m.gguf'))
        self.assertEqual([n for n in self.left() if not n.startswith('.')], ['m.gguf', 'theirs.gguf'])

    def test_a_file_put_there_by_hand_is_taken_where_it_is_right(self):
        self.folder.mkdir()
        (self.folder / 'm-Q4_K_M.gguf').write_bytes(MODEL)
        self.server.repository('u/r', {'m-Q4_K_M.gguf': MODEL})
        self.assertTrue(json.loads(self.pull('u/r', '--json'))['files'][0]['was_there'])

    # --- interrupted, killed, twice at once

    def wait_for_partial(self, n_bytes):
        for _ in range(2000):
            for path in self.folder.glob('*.partial') if self.folder.exists() else []:
                if path.stat().st_size >= n_bytes:
                    return
            time.sleep(0.01)
        self.fail('no partial file')

    def kill_once_it_has(self, url, n_bytes, how=signal.SIGKILL):
        process = self.start(url)
        self.wait_for_partial(n_bytes)
        process.send_signal(how)
        process.communicate(timeout=30)
        return process.returncode

    def test_goes_on_after_an_interrupt_and_a_kill(self):
        for how, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
            self.server.reset()
            name = f'{how.name}.gguf'
            url = self.server.on(f'/{name}', Reply(MODEL, etag='"a"', cut=HALF, stall=30))
            self.assertEqual(self.kill_once_it_has(url, HALF, how), code)
            self.assertFalse((self.folder / name).exists())
            self.server.on(f'/{name}', Reply(MODEL, etag='"a"'))
            self.pull(url)
            self.assert_whole(name, MODEL)
            self.assertEqual(self.ranges(), [None, f'bytes={HALF}-'])

    def test_two_at_once_fetch_it_once(self):
        url = self.server.on('/m.gguf', Reply(MODEL, etag='"a"', rate=400_000))
        first = self.start(url)
        self.wait_for_partial(1)
        second = self.start(url)
        for process in (first, second):
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (0, f'{self.folder}/m.gguf\n'), err)
        self.assertIn('another pull', err)
        self.assert_whole('m.gguf', MODEL)
        self.assertLess(self.server.sent_bytes, 2 * len(MODEL))

    def test_random_kills_leave_no_wrong_file(self):
        rounds = int(os.environ.get('ASSAY_KILL_ROUNDS', '4'))
        chance = random.Random(27)
        n_done = 0
        for i in range(rounds):
            data = gguf(seed=i % 200)
            self.server.repository('u/r', {'m-Q4_K_M.gguf': data})
            self.server.on('/u/r/resolve/main/m-Q4_K_M.gguf', Reply(data, etag=f'"{i}"', rate=2_000_000, cut=chance.choice([None, HALF])))
            process = self.start('u/r')
            try:
                process.communicate(timeout=chance.uniform(0, 0.3))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
            target = self.folder / 'm-Q4_K_M.gguf'
            if target.exists():
                n_done += 1
                self.assertEqual(sha256(target.read_bytes()), sha256(data), f'round {i}')
                target.unlink()
            if i % 3 == 2:  # what is left does not spoil a whole fetch
                self.pull('u/r')
                self.assert_whole('m-Q4_K_M.gguf', data)
                target.unlink()
        if rounds >= 50:
            print(f'{rounds} kills, {n_done} after the file was whole', file=sys.stderr)

    # --- in other commands

    def test_hf_and_mu_pull_first(self):
        self.server.repository('u/r', {'m-Q4_K_M.gguf': MODEL})
        for arguments in (['inspect', '-hf', 'u/r', '--json'], ['inspect', '-mu', self.server.on('/n.gguf', Reply(MODEL, etag='"a"')), '--json']):
            process = self.start(*arguments, command=())
            out, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 3, err)  # a file of one tensor is no model
            self.assertEqual(json.loads(out)['architecture'], 'llama')
        self.assert_whole('m-Q4_K_M.gguf', MODEL)
        self.assert_whole('n.gguf', MODEL)
        self.assertIn('exclude', self.pull('-hf', 'u/r', '-m', 'x', command=('inspect',), code=2))
        self.server.on('/api/models/u/r/tree/main', Reply(status=404))
        process = self.start('inspect', '-hf', 'u/r', command=())  # the server has it no more, we have
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 3, err)
        self.assertIn('running the one that is here', err)

    def test_a_bar_on_a_terminal_alone(self):
        import pty
        url = self.server.on('/m.gguf', Reply(MODEL, rate=200_000))
        ours, theirs = pty.openpty()
        process = subprocess.Popen([PROGRAM, 'pull', url], stdout=subprocess.PIPE, stderr=theirs, stdin=subprocess.DEVNULL, env=self.environment())
        os.close(theirs)
        shown = b''
        try:
            while True:
                piece = os.read(ours, 4096)
                if not piece:
                    break
                shown += piece
        except OSError:
            pass  # the other end is closed
        out, _ = process.communicate(timeout=60)
        os.close(ours)
        self.assertEqual(out.decode(), f'{self.folder}/m.gguf\n')
        self.assertRegex(shown.decode(), r'\[#*-*\] +\d+ %')


if __name__ == '__main__':
    unittest.main(verbosity=1)
