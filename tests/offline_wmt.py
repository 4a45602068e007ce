"""WMT without a network: archives of the real layout, behind the real addresses.

A loopback server plays an HTTP proxy, so that TFDS asks for the addresses it knows. As a program,
`python -m tests.offline_wmt MODULE FLAGS…` runs a module with the small archives' checksums
registered in place of the real ones; without it, TFDS finds them wrong.
"""

import contextlib
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import runpy
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping

from tensorflow_datasets.core.download import checksums
from tensorflow_datasets.translate import wmt14, wmt_t2t

from transformer_jax.data import toy

STATMT, DATA = "http://www.statmt.org", "http://data.statmt.org"
CHECKSUMS = "OFFLINE_WMT_CHECKSUMS"  # environment variable: a JSON file of them


def archives(pairs: int, held_out: int, foreign: str = "de") -> dict[str, bytes]:
    """A builder's archives, by address, filled from the toy grammar.

    Args:
      pairs: of the training set.
      held_out: pairs of newstest2013, and as many of newstest2014.
      foreign: de for `wmt_t2t_translate/de-en`, fr for `wmt14_translate/fr-en`; the sentences are
        German in either.
    """
    train, rest = toy.sentences(pairs, 2 * held_out, 0)
    dev, test = rest[:held_out], rest[held_out:]

    def plain(stem: str, sentences: list[toy.Sentence]) -> dict[str, bytes]:
        return {
            f"{stem}.{foreign}": "".join(f"{s.german}\n" for s in sentences).encode(),
            f"{stem}.en": "".join(f"{s.english}\n" for s in sentences).encode(),
        }

    def sgml(sentences: list[str]) -> bytes:
        escaped = [s.replace("&", "&amp;") for s in sentences]
        segments = [f'<seg id="{k}">{s}</seg>\n' for k, s in enumerate(escaped, start=1)]
        lines = ['<srcset setid="newstest2014"><doc>\n', *segments, "</doc></srcset>\n"]
        return "".join(lines).encode()

    languages = f"{foreign}-en"
    addresses = {
        f"{STATMT}/wmt13/training-parallel-europarl-v7.tgz": f"training/europarl-v7.{languages}",
        f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz": f"commoncrawl.{languages}",
    }
    if foreign == "de":
        addresses[f"{DATA}/wmt18/translation-task/training-parallel-nc-v13.tgz"] = (
            f"training-parallel-nc-v13/news-commentary-v13.{languages}"
        )
    else:
        addresses |= {
            f"{STATMT}/wmt14/training-parallel-nc-v9.tgz": (
                f"training/news-commentary-v9.{languages}"
            ),
            f"{STATMT}/wmt13/training-parallel-un.tgz": f"un/undoc.2000.{languages}",
            f"{STATMT}/wmt10/training-giga-fren.tar": "giga-fren.release2.fixed",
        }
    found = {
        f"{DATA}/wmt19/translation-task/dev.tgz": _archive(
            {
                **plain("dev/newstest2013", dev),
                f"dev/newstest2014-{foreign}en-src.{foreign}.sgm": sgml(
                    [f"{s.german} & so" for s in test]
                ),
                f"dev/newstest2014-{foreign}en-ref.en.sgm": sgml(
                    [f"{s.english} & so" for s in test]
                ),
            }
        )
    }
    for place, (address, stem) in enumerate(addresses.items()):
        contents = plain(stem, train[place :: len(addresses)])
        if address.endswith(".tar"):  # whose files are compressed one by one
            contents = {f"{name}.gz": gzip.compress(text) for name, text in contents.items()}
        found[address] = _archive(contents, compressed=not address.endswith(".tar"))
    return found


def _archive(contents: Mapping[str, bytes], compressed: bool = True) -> bytes:
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w:gz" if compressed else "w:") as archive:
        for name, content in contents.items():
            record = tarfile.TarInfo(name)
            record.size = len(content)
            archive.addfile(record, io.BytesIO(content))
    return stored.getvalue()


@contextlib.contextmanager
def served(found: Mapping[str, bytes], cut: str = "") -> Iterator[dict[str, str]]:
    """Serves archives; yields the environment in which a process finds them.

    Args:
      found: archives by address.
      cut: the address of one that breaks off halfway.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = found.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.path == cut else content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        yield {**os.environ, "http_proxy": address, "no_proxy": "", "JAX_PLATFORMS": "cpu"}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_checksums(found: Mapping[str, bytes], path: pathlib.Path) -> None:
    """Writes what `register` reads."""
    records = {
        url: {"size": len(content), "checksum": hashlib.sha256(content).hexdigest()}
        for url, content in found.items()
    }
    path.write_text(json.dumps(records))


def register(path: pathlib.Path) -> None:
    """Makes TFDS expect the archives whose checksums stand in a file."""
    known = {
        url: checksums.UrlInfo(size=record["size"], checksum=record["checksum"], filename=None)
        for url, record in json.loads(path.read_text()).items()
    }
    checksums.get_all_url_infos = lambda: known
    for builder in (wmt_t2t.WmtT2tTranslate, wmt14.Wmt14Translate):
        builder.url_infos = known  # a builder brings its own along


if __name__ == "__main__":
    register(pathlib.Path(os.environ[CHECKSUMS]))
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
