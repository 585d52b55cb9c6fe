#!/usr/bin/env python3
"""usage: prepare_test.py SCRIPT COMMAND

Tests tools/stagecoach-prepare without the network: byte-level tokens, and a stand-in for
`tokenizers`. COMMAND is the stagecoach that reads what it writes.
"""

import array
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPT = pathlib.Path(sys.argv[1]).resolve()
COMMAND = pathlib.Path(sys.argv[2]).resolve()

MODEL = {'model_type': 'gpt2', 'vocab_size': 257, 'n_positions': 32, 'n_embd': 32, 'n_layer': 2,
         'n_head': 2}

# One token a character, <s> before and nothing after, as a tokenizer.json would say.
STAND_IN = '''
class Encoding:
    def __init__(self, ids, offsets):
        self.ids, self.offsets = ids, offsets

class Tokenizer:
    @staticmethod
    def from_str(text):
        if 'broken' in text:
            raise ValueError('broken on purpose')
        return Tokenizer()
    def no_truncation(self): self.cut = False
    def no_padding(self): self.pad = False
    def get_vocab(self, with_added_tokens): return {chr(i): i for i in range(70000)}
    def token_to_id(self, token): return {'</s>': 2}.get(token)
    def id_to_token(self, token): return chr(token)
    def encode(self, text, add_special_tokens):
        assert not self.cut and not self.pad
        ids = [1] * add_special_tokens + [ord(c) for c in text]
        return Encoding(ids, [(i, i + 1) for i in range(len(text))])
    def encode_batch(self, texts, add_special_tokens):
        return [self.encode(text, add_special_tokens) for text in texts]
    encode_batch_fast = encode_batch
    def decode(self, ids, skip_special_tokens):
        assert skip_special_tokens
        return ''.join(chr(i) for i in ids if i not in (1, 2))
'''

# A template engine with one template: <role>content, and <assistant> where an answer is to come.
TEMPLATES = '''
import types

class Template:
    def render(self, messages, add_generation_prompt, **others):
        text = ''.join(f'<{m["role"]}>{m["content"]}' for m in messages)
        return text + '<assistant>' * add_generation_prompt

class Environment:
    def __init__(self, **settings): self.filters, self.globals = {}, {}
    def from_string(self, source): return Template()

ext = types.SimpleNamespace(Extension=object, loopcontrols=None)
sandbox = types.SimpleNamespace(ImmutableSandboxedEnvironment=Environment)
exceptions = types.SimpleNamespace(TemplateError=ValueError)
import sys
sys.modules.update({'jinja2.ext': ext, 'jinja2.sandbox': sandbox})
'''


class TokenFile:
    """A token file, read by the text of train/token_file.h alone."""

    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
        (magic, version, bits, self.vocabulary, count, documents, flags,
         zero, self.tokenizer) = struct.unpack('<8sIIQQQII32s', data[:80])
        assert (magic, version, zero, data[80:128]) == (b'SCTOKENS', 1, 0, bytes(48))
        self.bits = bits
        size = bits // 8
        self.ids = list(array.array('H' if bits == 16 else 'I', data[128:128 + size * count]))
        at = 128 + (size * count + 7) // 8 * 8
        self.targets = [True] * count
        if flags & 1:
            self.targets = [bool(data[at + i // 8] >> i % 8 & 1) for i in range(count)]
            at += ((count + 7) // 8 + 7) // 8 * 8
        self.documents = list(struct.unpack(f'<{documents}Q', data[at:at + 8 * documents]))
        assert len(data) == at + 8 * documents

    def shown(self):
        """Characters, those to be predicted in brackets of their own: 'ab[c]'."""
        text = ''
        for i, (token, is_target) in enumerate(zip(self.ids, self.targets)):
            if i in self.documents and i > 0:
                text += '/'
            character = {1: '<', 2: '>', 256: '|'}.get(token) or chr(token)
            text += f'[{character}]' if is_target else character
        return text.replace('][', '')


class Prepare(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.environment = dict(os.environ, XDG_CACHE_HOME=str(self.folder / 'cache'),
                                PYTHONPATH=str(self.folder / 'modules'))
        for name in ('STAGECOACH_PREPARE_PYTHON', 'STAGECOACH_PREPARE_ENTERED'):
            self.environment.pop(name, None)

    def tearDown(self):
        self.temporary.cleanup()

    def write(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode('utf-8'))
        return str(path)

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, *arguments], cwd=self.folder,
                              env=self.environment, capture_output=True, text=True, check=False,
                              timeout=60)

    def prepare(self, *arguments, tokenizer='bytes'):
        result = self.run_script('--tokenizer', tokenizer, '--out', 'out', '--json', *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def refusal(self, *arguments, tokenizer='bytes'):
        result = self.run_script('--tokenizer', tokenizer, '--out', 'out', *arguments)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertNotIn('Traceback', result.stderr)
        self.assertFalse((self.folder / 'out').exists(), 'an empty folder was left behind')
        return result.stderr

    def stand_in(self):
        self.write('modules/tokenizers.py', STAND_IN)
        self.write('tok/tokenizer.json', '{}')
        self.write('tok/tokenizer_config.json', json.dumps({'eos_token': {'content': '</s>'}}))
        self.environment['STAGECOACH_PREPARE_PYTHON'] = sys.executable

    def test_records_become_documents_with_their_targets(self):
        self.write('p.jsonl', '{"prompt": "ab", "completion": "c"}\n\n'
                              '{"prompt": "d", "completion": "ef", "id": 7}\n')
        answer = self.prepare('p.jsonl')
        self.assertEqual(answer['files'], [{'input': 'p.jsonl', 'output': 'out/p.bin', 'tokens': 8,
                                            'targets': 5, 'documents': 2, 'bits': 16}])
        file = TokenFile(self.folder / 'out/p.bin')
        self.assertEqual(file.shown(), 'ab[c|]/d[ef|]')
        self.assertEqual((file.vocabulary, file.tokenizer), (257, bytes(32)))

    def test_chats_become_what_the_command_makes_of_them(self):
        self.write('c.jsonl', '{"messages": [{"role": "user", "content": "hi"}, '
                              '{"role": "assistant", "content": "yo"}]}\n')
        self.prepare('c.jsonl')
        self.assertEqual(TokenFile(self.folder / 'out/c.bin').shown(),
                         '<|user|>\nhi\n<|assistant|>\n[yo|]'.replace('<|', '\0').replace(
                             '\0', '<|'))

    def test_what_editors_add_changes_nothing(self):
        self.write('a.txt', 'one\ntwo\n')
        self.write('b.txt', b'\xef\xbb\xbfone\r\ntwo\r\n')
        self.prepare('a.txt', 'b.txt')
        one, two = (TokenFile(self.folder / f'out/{name}.bin') for name in 'ab')
        self.assertEqual(one.ids, list(b'one\ntwo\n'))
        self.assertEqual(two.ids, one.ids)
        self.assertEqual(one.documents, [])

    def test_pieces_of_large_files_fit_together(self):
        line = 'é\r\n' * 3
        self.write('big.txt', line * 400_000)
        self.prepare('big.txt')
        self.assertEqual(TokenFile(self.folder / 'out/big.bin').ids,
                         list('é\n'.encode()) * 3 * 400_000)

    def test_training_is_the_same_on_prepared_files(self):
        records = ''.join(f'{{"prompt": "{i} and ", "completion": "{i * i}"}}\n' for i in range(9))
        self.write('r.jsonl', records)
        self.write('model.json', json.dumps(MODEL))
        self.prepare('r.jsonl')
        sums = []
        for number, data in enumerate(('r.jsonl', 'out/r.bin')):
            run = subprocess.run(
                [COMMAND, 'train', '--model', 'model.json', '--data', data, '--devices', 'cpu:1',
                 '--set', 'model.init=random', 'data.sequence=16', 'train.iterations=3',
                 f'output.dir=run{number}'], cwd=self.folder, capture_output=True, text=True,
                check=False)
            self.assertEqual(run.returncode, 0, run.stderr)
            summary = json.loads((self.folder / f'run{number}/summary.json').read_text())
            sums.append((summary['weights_sha256'], summary['tokens']))
        self.assertEqual(sums[0], sums[1])

    def test_refusals_name_file_line_and_remedy(self):
        cases = {
            '{"text": "a"}\n{"txt": "b"}\n': ['line 2', '"txt"', 'expected one of'],
            '{"text": "a"}\n{"text": 7}\n': ['line 2', 'int', 'expected text'],
            '{"text": "a"\n': ['line 1', 'not JSON'],
            '[1]\n': ['line 1', 'list', 'expected an object'],
            '{"text": "a", "text": "b"}\n': ['line 1', 'twice'],
            '{"text": NaN}\n': ['line 1', 'NaN'],
            '{"text": "\\ud800"}\n': ['line 1', 'surrogate'],
            '{"prompt": "a"}\n': ['line 1', '"completion"'],
            '{"text": "a"}\n{"prompt": "a", "completion": "b"}\n': ['line 2', 'split'],
            '{"messages": [{"role": "bot", "content": "x"}]}\n': ['message 1', '"bot"'],
            '[' * 200_000: ['line 1', 'not JSON'],
            ' \n\n': ['no tokens'],
        }
        for content, wanted in cases.items():
            self.write('x.jsonl', content)
            message = self.refusal('x.jsonl')
            for part in ["'x.jsonl'", *wanted]:
                self.assertIn(part, message)
        self.write('x.jsonl', b'{"text": "a"}\n{"text": "\xe6"}\n')
        self.assertIn('line 2 is not UTF-8 at its byte 11', self.refusal('x.jsonl'))
        self.write('x.txt', b'ab\ncd\xe6\xff')
        self.assertIn('line 2 is not UTF-8 at byte 5 of the file (0xe6)', self.refusal('x.txt'))
        self.write('x.txt', 'text'.encode('utf-16'))
        self.assertIn('UTF-16', self.refusal('x.txt'))
        self.write('x.txt', b'\xef\xbb\xbf')
        self.assertIn('is empty', self.refusal('x.txt'))
        self.assertIn('name files that exist', self.refusal('absent.txt'))
        self.write('x.parquet', 'x')
        self.assertIn('allowed: text', self.refusal('x.parquet'))
        self.write('y/x.txt', 'text')
        self.write('x.txt', 'text')
        self.assertIn('would both become', self.refusal('x.txt', 'y/x.txt'))
        self.assertEqual(self.run_script('--tokenizer', 'bytes', 'x.txt').returncode, 1)

    def test_refusals_are_objects_for_scripts_and_leave_nothing(self):
        self.write('x.jsonl', '[1]\n')
        for out in ('new', 'new/er/out'):
            result = self.run_script('--tokenizer', 'bytes', '--out', out, '--json', 'x.jsonl')
            self.assertEqual(result.returncode, 1)
            refusal = json.loads(result.stdout)
            self.assertIn('expected an object', refusal['error'])
            self.assertEqual(refusal['exit_code'], 1)
            self.assertEqual(result.stderr, f'stagecoach-prepare: {refusal["error"]}\n')
            self.assertFalse((self.folder / 'new').exists())
        self.assertIn('error', json.loads(self.run_script('--json', '--nonsense').stdout))
        # What was there stays.
        (self.folder / 'mine').mkdir()
        self.run_script('--tokenizer', 'bytes', '--out', 'mine', 'x.jsonl')
        self.assertTrue((self.folder / 'mine').exists())

    def test_names_are_shown_and_not_obeyed(self):
        self.write('x\x1b[2J\n.jsonl', '[1]\n')
        message = self.refusal('x\x1b[2J\n.jsonl')
        self.assertIn('x\\x1b[2J\\n.jsonl', message)
        self.assertNotIn('\x1b', message)
        self.assertEqual(message.count('\n'), 1)

    def test_a_file_in_the_way_is_not_replaced_unless_it_is_a_token_file(self):
        self.write('a.txt', 'text')
        self.write('out/a.bin', 'mine')
        result = self.run_script('--tokenizer', 'bytes', '--out', 'out', 'a.txt')
        self.assertEqual(result.returncode, 1)
        self.assertIn('in the way', result.stderr)
        self.assertEqual((self.folder / 'out/a.bin').read_text(), 'mine')
        (self.folder / 'out/a.bin').unlink()
        self.prepare('a.txt')
        self.write('a.txt', 'other text')
        self.prepare('a.txt')
        self.assertEqual(TokenFile(self.folder / 'out/a.bin').ids, list(b'other text'))

    def test_a_killed_run_leaves_the_old_file(self):
        self.write('a.jsonl', '{"text": "old"}\n')
        self.prepare('a.jsonl')
        self.write('a.jsonl', '{"prompt": "a", "completion": "new"}\n' * 300_000)
        with subprocess.Popen([sys.executable, SCRIPT, '--tokenizer', 'bytes', '--out', 'out',
                               'a.jsonl'], cwd=self.folder, env=self.environment) as running:
            deadline = time.monotonic() + 30
            while not list((self.folder / 'out').glob('*.tmp')) and time.monotonic() < deadline:
                time.sleep(0.01)
            running.send_signal(signal.SIGKILL)
        self.assertEqual(running.returncode, -signal.SIGKILL)
        self.assertEqual(TokenFile(self.folder / 'out/a.bin').shown(), '[old|]')

    def test_an_interrupt_leaves_nothing(self):
        self.write('a.jsonl', '{"prompt": "a", "completion": "new"}\n' * 300_000)
        with subprocess.Popen([sys.executable, SCRIPT, '--tokenizer', 'bytes', '--out', 'out',
                               '--json', 'a.jsonl'], cwd=self.folder, env=self.environment,
                              stdout=subprocess.PIPE, text=True) as running:
            deadline = time.monotonic() + 30
            while not list((self.folder / 'out').glob('*.tmp')) and time.monotonic() < deadline:
                time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            answer = json.loads(running.stdout.read())
        self.assertEqual(running.returncode, 130)
        self.assertEqual(answer['exit_code'], 130)
        self.assertFalse((self.folder / 'out').exists())

    # Field report 78: one start token, from whoever owns it.
    def test_tokenizer_folders_add_their_own_tokens_once(self):
        self.stand_in()
        self.write('t.jsonl', '{"text": "ab"}\n{"text": "c"}\n')
        self.write('p.jsonl', '{"prompt": "ab", "completion": "c"}\n')
        self.write('t.txt', 'ab\ncd')
        self.prepare('t.jsonl', tokenizer='tok')
        self.assertEqual(TokenFile(self.folder / 'out/t.bin').shown(), '[<ab>]/[<c>]')
        answer = self.prepare('p.jsonl', 't.txt', tokenizer='tok')
        self.assertEqual(TokenFile(self.folder / 'out/p.bin').shown(), '<ab[c>]')
        text = TokenFile(self.folder / 'out/t.bin')
        self.assertEqual(text.shown(), '[<ab\ncd>]')
        # More than 16 bits hold, and the digest of tokenizer.json.
        self.assertEqual((text.bits, text.vocabulary), (32, 70000))
        self.assertEqual(text.tokenizer.hex(), answer['tokenizer_sha256'])
        self.assertNotEqual(text.tokenizer, bytes(32))

    def test_tokenizer_folders_that_cannot_be_used_are_refused(self):
        self.stand_in()
        self.write('c.jsonl', '{"messages": [{"role": "user", "content": "x"}]}\n')
        self.assertIn('has no chat template', self.refusal('c.jsonl', tokenizer='tok'))
        self.write('a.txt', 'text')
        self.assertIn('holds no tokenizer.json', self.refusal('a.txt', tokenizer='absent'))
        self.write('tok/tokenizer_config.json', '{"eos_token": "<none>"}')
        self.assertIn("'<none>'", self.refusal('a.txt', tokenizer='tok'))
        self.write('tok/tokenizer.json', 'broken')
        self.assertIn('broken on purpose', self.refusal('a.txt', tokenizer='tok'))
        self.environment['STAGECOACH_PREPARE_PYTHON'] = '/nowhere/python'
        self.assertIn('cannot be run', self.refusal('a.txt', tokenizer='tok'))

    def test_without_packages_and_network_it_says_what_to_do(self):
        self.write('tok/tokenizer.json', '{}')
        self.write('a.txt', 'text')
        self.environment.update(PIP_NO_INDEX='1', PIP_CONFIG_FILE=os.devnull)
        message = self.refusal('a.txt', tokenizer='tok')
        self.assertRegex(message, 'STAGECOACH_PREPARE_PYTHON|python3-venv')

    def tokenizer_model(self):
        """A folder with weights and the stand-in's tokenizer.json."""
        self.stand_in()
        self.write('modules/jinja2.py', TEMPLATES)
        self.write('model.json', json.dumps(MODEL))
        self.write('train.txt', 'the cat sat on the mat. ' * 40)
        self.command('train', '--model', 'model.json', '--data', 'train.txt', '--devices', 'cpu:1',
                     '--set', 'model.init=random', 'train.iterations=2', 'train.batch=2',
                     'train.microbatches=1', 'data.sequence=16', 'output.dir=run')
        for name in ('config.json', 'model.safetensors'):
            self.write(f'tok/{name}', (self.folder / 'run/checkpoint' / name).read_bytes())

    def command(self, *arguments, code=0):
        result = subprocess.run([COMMAND, *arguments], cwd=self.folder, env=self.environment,
                                capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def generate(self, *arguments, code=0):
        result = self.command('generate', '--model', 'tok', '--tokens', '3', '--temperature', '0',
                              '--json', *arguments, code=code)
        return json.loads(result.stdout)

    def test_generates_with_the_tokenizer_of_the_folder(self):
        self.tokenizer_model()
        made = self.generate('--prompt', 'cé')
        self.assertEqual((made['tokens'], len(made['token_ids'])), (3, 3))
        shown = ''.join(chr(i) for i in made['token_ids'] if i not in (1, 2))
        self.assertEqual(made['text'], 'cé' + shown)
        # What generation_config.json names ends the answer; eos_token does too.
        first = made['token_ids'][0]
        self.write('tok/generation_config.json', json.dumps({'eos_token_id': [first, 5]}))
        self.assertEqual(self.generate('--prompt', 'cé')['token_ids'], [first])
        self.write('tok/generation_config.json', json.dumps({'eos_token_id': 'x'}))
        self.assertIn('eos_token_id is "x"', self.generate('--prompt', 'c', code=1)['error'])
        (self.folder / 'tok/generation_config.json').unlink()
        # A chat has no template until there is one; then the answer alone is the text.
        self.assertIn('no chat template', self.generate('--prompt', 'c', '--chat', code=1)['error'])
        self.write('tok/chat_template.jinja', '…')
        chat = self.generate('--prompt', 'c', '--chat')
        self.assertEqual(chat['text'],
                         ''.join(chr(i) for i in chat['token_ids'] if i not in (1, 2)))
        self.assertIn('vocabulary', self.generate('--prompt', '\u0429', code=1)['error'])

    def test_requests_are_answered_line_by_line(self):
        self.stand_in()
        self.write('modules/jinja2.py', TEMPLATES)
        self.write('tok/chat_template.jinja', '…')
        lines = [{'prompt': 'ab', 'chat': False}, {'prompt': 'a', 'chat': True},
                 {'ids': [1, 97, 98, 2], 'from': 2}, {'prompt': 'a'}]
        result = subprocess.run([sys.executable, SCRIPT, '--tokenizer', 'tok', '--pipe', '--json'],
                                cwd=self.folder, env=self.environment, capture_output=True,
                                text=True, check=False, timeout=60,
                                input=''.join(json.dumps(line) + '\n' for line in lines))
        self.assertEqual(result.returncode, 1, result.stderr)
        prompt, chat, text, error = map(json.loads, result.stdout.splitlines())
        self.assertEqual(prompt, {'ids': [1, 97, 98], 'end_ids': [2], 'vocabulary': 70000})
        self.assertEqual(''.join(map(chr, chat['ids'])), '<user>a<assistant>')
        self.assertEqual(text, {'text': 'b'})
        self.assertIn("KeyError('chat')", error['error'])
        self.assertIn('--pipe takes', self.refusal('a.txt', '--pipe', tokenizer='tok'))

    def test_answers_are_found_in_what_a_template_renders(self):
        loader = importlib.machinery.SourceFileLoader('prepare', str(SCRIPT))
        module = importlib.util.module_from_spec(importlib.util.spec_from_loader('prepare', loader))
        loader.exec_module(module)
        # Plain: what is rendered up to the answer begins the whole.
        self.assertEqual(module.answer_end('u:a s:b. u:c', 'u:a s:', 'u:a s:b.', 'b'), 8)
        # Thoughts that the template leaves out of answers before the last.
        self.assertEqual(module.answer_end('u:a s:b. u:c', 'u:a s:', 'u:a s:(thinks)b.', ' b '), 8)
        # A template that renders the past in another way.
        self.assertIsNone(module.answer_end('U:a s:b. u:c', 'u:a s:', 'u:a s:b.', 'b'))
        self.assertIsNone(module.answer_end('u:a s:x. u:c', 'u:a s:', 'u:a s:b.', 'b'))


if __name__ == '__main__':
    sys.dont_write_bytecode = True
    unittest.main(argv=sys.argv[:1])
