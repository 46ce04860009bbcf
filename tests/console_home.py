"""The home folder in which console_test.py types what pages show: models, stores of other programs, a server that stands for Hugging Face's."""
import os
import pathlib
import shutil
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from faulty_server import Server  # noqa: E402

MODELS = pathlib.Path(os.environ.get('ASSAY_MODELS') or pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'assay/models')
SMOLLM2 = MODELS / 'smollm2-135m-instruct-Q4_1.gguf'
# Files that pages name and nobody fetches here: commands of which a page shows no answer are run on another model.
STAND_INS = ['model.gguf', 'smollm2.gguf', 'bge-small-en-v1.5-f16.gguf', 'qwen3-embedding-0.6b-q8_0.gguf', 'qwen2.5-0.5b-instruct-q4_k_m.gguf']
TOOLS = ['jq']
Q8_0, Q6_K = (8, 32, 34), (14, 256, 210)  # a type's number in files, elements and bytes of its blocks


def text(value):
    return struct.pack('<Q', len(value)) + value.encode()


def write_header(path, architecture, kind, n_bytes):
    """A file that says what it is, with one tensor of zeros that takes no room on the disk."""
    number, elements, block_bytes = kind
    n_blocks = n_bytes // block_bytes
    head = b'GGUF' + struct.pack('<IQQ', 3, 1, 1) + text('general.architecture') + struct.pack('<I', 8) + text(architecture)
    head += text('blk.0.ffn_up.weight') + struct.pack('<IQIQ', 1, elements * n_blocks, number, 0)
    head += b'\0' * (-len(head) % 32)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'wb') as file:
        file.write(head)
        file.truncate(len(head) + n_blocks * block_bytes)


class Home:
    @staticmethod
    def missing():
        """Why pages cannot be checked here; empty where they can."""
        absent = [tool for tool in TOOLS if not shutil.which(tool)]
        if absent:
            return f'there is no {absent[0]} here'
        return '' if SMOLLM2.exists() else f'{SMOLLM2} is not there (scripts/fetch-models)'

    def __init__(self, folder, program, root):
        self.folder = folder / 'ada'
        self.work, self.bin = self.folder / 'work', self.folder / 'bin'
        for path in (self.work, self.bin, self.models):
            path.mkdir(parents=True)
        (self.bin / 'assay').symlink_to(program)
        (self.bin / 'faulty_dump').symlink_to(program.parent / 'tests/faulty/faulty_dump')  # an engine with faults, for docs/verify.md
        (self.models / SMOLLM2.name).symlink_to(SMOLLM2)
        for name in STAND_INS:
            (self.work / name).symlink_to(SMOLLM2)
        for name in ('tools', 'tests', 'docs', 'examples'):
            (self.work / name).symlink_to(root / name)
        write_header(self.work / 'mamba-130m.gguf', 'mamba', Q8_0, 100_000)
        (self.work / 'texts.txt').write_text('a shoal of fish\na herd of cows\n')
        self.add_stores()
        self.server = Server()
        self.repository_is_there = False

    @property
    def models(self):
        return self.folder / '.cache/assay/models'

    def add_stores(self):
        snapshot = self.folder / '.cache/huggingface/hub/models--bartowski--Phi-3-GGUF/snapshots' / ('a' * 40)
        write_header(snapshot / 'Phi-3-Q6_K.gguf', 'phi3', Q6_K, int(2.92 * 2**30))
        ollama = self.folder / '.ollama/models'
        digest = 'b' * 64
        write_header(ollama / f'blobs/sha256-{digest}', 'gemma3', Q8_0, int(277.5 * 2**20))
        manifest = ollama / 'manifests/registry.ollama.ai/library/gemma3/270m'
        manifest.parent.mkdir(parents=True)
        manifest.write_text('{"schemaVersion": 2, "layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:%s", "size": 1}]}' % digest)

    def environment(self):
        kept = {k: v for k, v in os.environ.items() if 'proxy' not in k.lower() and not k.startswith(('HF_', 'ASSAY_', 'OLLAMA_', 'XDG_', 'CURL_', 'SSL_', 'PS'))}
        return {**kept, 'HOME': str(self.folder), 'PATH': f'{self.bin}:{kept.get("PATH", "/usr/bin:/bin")}', 'HF_ENDPOINT': self.endpoint(), 'LC_ALL': 'C.UTF-8',
                'TERM': 'dumb'}

    def endpoint(self):
        return self.server.url()

    def serve_repository(self):
        """What stands for the repository of the short name smollm2 has the file that is here."""
        if not self.repository_is_there:
            self.server.repository('bartowski/SmolLM2-135M-Instruct-GGUF', {'SmolLM2-135M-Instruct-Q4_K_M.gguf': SMOLLM2.read_bytes()})
            self.repository_is_there = True

    def shown(self, printed):
        """With the paths and addresses that pages have."""
        return printed.replace(str(self.folder), '/home/ada').replace(self.server.url(), 'https://huggingface.co')

    def close(self):
        self.server.shutdown()
        self.server.server_close()
