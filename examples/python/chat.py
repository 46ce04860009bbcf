"""Streams the answers to lines of standard input, as one conversation.   usage: chat.py MODEL (a path, or a name of `assay list`)"""
import sys

import assay

chat = assay.Chat(assay.Model(sys.argv[1]), "Answer in one line.", temperature=0, max_tokens=64)
for line in sys.stdin:
    for piece in chat.send(line.rstrip("\n")):
        print(piece, end="", flush=True)
    print()
