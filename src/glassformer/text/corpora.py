"""The named corpora: what they are, where they are published, and the sizes and sums of their files."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    path: str  # below a data folder; its first part is the corpus's name
    url: str | None  # None: published nowhere as this one file
    size: int
    sha256: str


@dataclass(frozen=True)
class Corpus:
    name: str
    title: str
    licence: str
    page: str
    files: tuple[RemoteFile, ...]
    note: str = ""


def _files(name: str, address: str | None, table: str) -> tuple[RemoteFile, ...]:
    """The files of a table of sha256, size and path, which is also the end of the address."""
    rows = [line.split() for line in table.strip().splitlines()]
    return tuple(RemoteFile(f"{name}/{path}", address and f"{address}/{path}", int(size), sha256) for sha256, size, path in rows)


MULTI30K = """
    958a82d4f1c596074c6ae403bd877ff4a34ff09e1a08db36ad0c1b146f57771a  557982 tok/train.lc.norm.tok.en.gz
    32f367bb30c948f5da0c3567a8b7d8c017ff6f938c73aa01a50fe68e99ad8fa3  609371 tok/train.lc.norm.tok.de.gz
    ad4bdfd8d91ac4325ec95f12406d06d6ca6b16ae976657b1e1a3899962268050   21336 tok/val.lc.norm.tok.en.gz
    39e083a21b23e878affd4c41b6bdc8af989d9c811a370f4553ee728fcd17dfee   23706 tok/val.lc.norm.tok.de.gz
    104edae553a842fb7d154b7a5a0447ffcbe5508393fd342cf4c6757e2b8cc505   20758 tok/test_2016_flickr.lc.norm.tok.en.gz
    8ad6b7da74a6b7d9a7dea3f14175325b5c64936445cbe31513601a13d6875e3b   21998 tok/test_2016_flickr.lc.norm.tok.de.gz
    d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f  568929 raw/train.en.gz
    726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6  637044 raw/train.de.gz
    14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28   21650 raw/val.en.gz
    f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a   24681 raw/val.de.gz
    611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9   21077 raw/test_2016_flickr.en.gz
    9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8   22890 raw/test_2016_flickr.de.gz
"""

TATOEBA_ZH_EN = """
    3e6a3d9f97d92fc0d9a6fa8788430eb8ed8778b1d72c4d8ba2ea26140bfafef8 3257603 train.tsv
    83f517d8735d1a150c39d4d6f60d5b9be7e6c76691b87eddf5e06cf117761451   73530 dev.tsv
"""

TINYSHAKESPEARE = """
    86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed 1115394 input.txt
"""

TANG_POEMS = """
    c9f43080b9ccea5c1c3bbadc9d834ebffa94d6b1389b7195204b1459978976a1 3274115 tang_regular_forms.tsv.gz
"""

WIKITEXT2 = """
    28662468f38b373031fd22fcab454f21048954ca3d415bad4a0656621a778723 3674057 train.txt.gz
    7e9b93067b739181a1025eedab8020e16acf2ba015347047a1c978a665032ed5  373168 valid.txt.gz
    0d50abe837843d4c9ed5447f3e950e16568ce31a1a2b90035bece88da754329d  410683 test.txt.gz
"""

SST = """
    e2f3f41b0b1e6d4dddc0effe3bfc2d27ed8928079aa9a03d652311614fc5feb7 2160058 train.txt
    0e9336aed6e4730e19f58d00a77b3f0297efdb755f7b5e598c98a05e3f97ea40  280825 dev.txt
"""

CHNSENTICORP = """
    0b2653c23e5c79f539472e90cb10522f0ada4b80d3da95572d8b48fda47d5b33 3019974 train.tsv
    d129e443eac08ce7643013dad496a8edf282be39cac1a4f2ad080818b296b331  374230 dev.tsv
"""

CLINC150 = """
    36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0 2495390 data_full.json
"""

UD_EN_EWT = """
    40ba32d8fc43ca458671ff50a5049e2f5f2922915b96a6b660390be6fd980e38 2605935 en_ewt-ud-train.conllu.gz
    dcd7837d2ea5fdfdd121027a6ef5d17fc7dc110fbea03e03f27c0a00258c4832  333858 en_ewt-ud-dev.conllu.gz
"""

UNER_ZH_GSD_TRAIN = """
    b9ed49a5abd6b9a74001ed0f08cbd54908129b88a42ecd50ae9cf6cef7c177c1 2088774 zh_gsd-ud-train.iob2
"""

UNER_ZH_GSD_DEV = """
    0f8d7159545f257548aa4290302fb474c026ee0e1e61b3536ceb858893e3a1f1 270693 zh_gsd-ud-dev.iob2
"""

SICK = """
    266cf8047149bd1d68138dd30439f3122bff30069740ac6705bb6197d9f1b48e 506243 SICK_train.txt
    5a88cfb62f8c6bd2a3cce0f2421ba2cb8c2be5ab4a800f6f01e2c64aafb7db56  57225 SICK_trial.txt
"""

GOOGLE_ANALOGIES = """
    8c29b3332afc46f3fb8be04cb5297bf96f39aa7131272dff57869b4485b22a36 603955 questions-words.txt
"""

WORDSIM = """
    f92a022fc2537793a15bc3a8c162ebcd74990e033a228bb6388cb71e4c0b1e1d 7186 wordsim353.tsv
"""

SIMLEX = """
    d5e0501971478a511430ee880bd0121e94ac701ba86d90544d83e6d2ba3db05d 18126 simlex999.txt
"""

CA8 = """
    aed64568e6350ce08f7b9e4af2bd8aadd7ff0498b812cd94c660638ed8ad1f4a 265603 semantic.txt
"""

CA_TRANSLATED = """
    94919a535ed2e0682e6ad12f7508b2aac9b11d0fa048999ec85b9723c0f0aef5 31539 ca_translated.txt
"""

STORIES260K = """
    b0a507e7ad0f626624f17112325e66691f9076d622e1d3274d103d00299f2696 1056540 stories260K.bin
    037cb335abb25d1fa9e8ecae30ed2a3a8ace9302862ebcdc05d51a6bbb10c312    6227 tok512.bin
"""

GPT2 = """
    196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783 1042301 encoder.json
    1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5  456318 vocab.bpe
"""

CL100K = """
    223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7 1681126 cl100k_base.tiktoken
"""

GITHUB = "https://raw.githubusercontent.com"
UNER = f"{GITHUB}/UniversalNER/UNER_Chinese-GSD"
GENSIM = "gensim/test/test_data"
CHINESE_VECTORS = f"{GITHUB}/Embedding/Chinese-Word-Vectors"
OPENAI = "https://openaipublic.blob.core.windows.net"

CORPORA: dict[str, Corpus] = {
    "multi30k": Corpus(
        name="multi30k",
        title="Multi30k task 1, English and German captions of photographs: train 29,000, val 1,014, test 1,000 pairs",
        licence="Flickr30k terms: research and education only",
        page="https://github.com/multi30k/dataset",
        files=_files("multi30k", "https://github.com/multi30k/dataset/raw/master/data/task1", MULTI30K),
        note="tok/ is lower-cased, normalised and tokenised; raw/ is as people write.",
    ),
    "tatoeba-zh-en": Corpus(
        name="tatoeba-zh-en",
        title="Tatoeba, short everyday sentences in English and simplified Chinese: train 47,002, dev 1,000 pairs",
        licence="CC BY 2.0 FR: name Tatoeba (https://tatoeba.org) with anything trained on it",
        page="https://tatoeba.org",
        files=_files("tatoeba-zh-en", None, TATOEBA_ZH_EN),
        note=(
            "These files have no address: they were merged from cmn-eng.zip of https://www.manythings.org/anki/, "
            "Tatoeba of OPUS (https://opus.nlpl.eu/Tatoeba) and the dev and test data of "
            "https://github.com/Helsinki-NLP/Tatoeba-Challenge, put into simplified characters, and rid of doubles and of "
            "every pair that shares a side with the test set of 2020-07-28. "
            "Any TSV of English TAB Chinese can be put in their place, with other scores."
        ),
    ),
    "tinyshakespeare": Corpus(
        name="tinyshakespeare",
        title="Tiny Shakespeare, 1,115,394 characters of his plays",
        licence="public domain",
        page="https://github.com/karpathy/char-rnn",
        files=_files(
            "tinyshakespeare", "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare", TINYSHAKESPEARE
        ),
    ),
    "tang-poems": Corpus(
        name="tang-poems",
        title="Tang poems in regular forms, 38,873 poems of 1.72 million characters: form TAB author TAB title TAB text",
        licence="MIT",
        page="https://github.com/chinese-poetry/chinese-poetry",
        files=_files("tang-poems", None, TANG_POEMS),
        note=(
            "This file has no address: it has the poems of the page that are in regular forms, one a line, in simplified "
            "characters. Any TSV of these four columns can be put in its place, with other scores."
        ),
    ),
    "wikitext2": Corpus(
        name="wikitext2",
        title="WikiText-2, articles of Wikipedia: train 2.09 million, valid 218 thousand, test 246 thousand words",
        licence="CC BY-SA",
        page="https://huggingface.co/datasets/Salesforce/wikitext",
        files=_files("wikitext2", None, WIKITEXT2),
        note=(
            "These files have no address: unpacked, they are word_language_model/data/wikitext-2 of "
            "https://github.com/pytorch/examples, byte for byte. Pack those with gzip to put them in their place."
        ),
    ),
    "sst": Corpus(
        name="sst",
        title="Stanford Sentiment Treebank, sentences of film reviews as trees with labels 0 to 4: train 8,544, dev 1,101",
        licence="research use",
        page="https://nlp.stanford.edu/sentiment/",
        files=_files("sst", None, SST),
        note="These files have no address: they are in trainDevTestTrees_PTB.zip of the page.",
    ),
    "chnsenticorp": Corpus(
        name="chnsenticorp",
        title="ChnSentiCorp, Chinese reviews of hotels, books and computers, good or bad: train 9,600, dev 1,200",
        licence="unclear: measure with it, give away nothing that was trained on it",
        page="https://github.com/ymcui/Chinese-BERT-wwm",
        files=_files("chnsenticorp", None, CHNSENTICORP),
        note="These files have no address: the page has the corpus as data/chnsenticorp/chnsenticorp.zip.",
    ),
    "clinc150": Corpus(
        name="clinc150",
        title="CLINC150, short requests in English, 150 intents and out of scope: train 15,000, val 3,000, test 4,500",
        licence="CC BY 3.0: name Larson et al. 2019 with anything trained on it",
        page="https://github.com/clinc/oos-eval",
        files=_files("clinc150", f"{GITHUB}/clinc/oos-eval/828f8093932c8fe6ca7936c3d2e52903b1c523de/data", CLINC150),
        note="The lists of the file are named train, val, test, oos_train, oos_val and oos_test: clinc150/data_full.json#train.",
    ),
    "ud-en-ewt": Corpus(
        name="ud-en-ewt",
        title="Universal Dependencies English EWT, words with their parts of speech: train 12,544, dev 2,001 sentences",
        licence="CC BY-SA 4.0",
        page="https://universaldependencies.org/treebanks/en_ewt/index.html",
        files=_files("ud-en-ewt", None, UD_EN_EWT),
        note=(
            "These files have no address: they were packed with gzip from "
            "https://github.com/UniversalDependencies/UD_English-EWT, which is corrected from release to release."
        ),
    ),
    "uner-zh-gsd": Corpus(
        name="uner-zh-gsd",
        title="Universal NER Chinese GSD, names of people, places and organisations: train 3,997, dev 500 sentences",
        licence="CC BY-SA 4.0",
        page="https://www.universalner.org",
        files=(
            *_files("uner-zh-gsd", f"{UNER}/305bce147217d4a8a011c318638c3545526fec29", UNER_ZH_GSD_TRAIN),
            *_files("uner-zh-gsd", f"{UNER}/4732e1e5db85161136c2722606bf786b61acd765", UNER_ZH_GSD_DEV),
        ),
        note="Traditional characters; the word is in column 2, its label in column 3.",
    ),
    "sick": Corpus(
        name="sick",
        title="SICK, pairs of sentences: entailment, neutral or contradiction, and how related: train 4,500, trial 500",
        licence="CC BY-NC-SA 3.0: not for commercial use",
        page="https://alt.qcri.org/semeval2014/task1/",
        files=_files("sick", f"{GITHUB}/brmson/dataset-sts/11bb9cf92419821f3bf907e9bd22291bed84d990/data/sts/sick2014", SICK),
        note="Tab-separated, with the names of the columns in the first line.",
    ),
    "word-eval": Corpus(
        name="word-eval",
        title="tests of word vectors: WordSim-353, SimLex-999, Google's 19,544 analogies, and 8,589 Chinese ones",
        licence="analogies Apache 2.0; WordSim-353 and SimLex-999: see the pages that their first lines name",
        page="https://github.com/tmikolov/word2vec",
        files=(
            *_files("word-eval", f"{GITHUB}/piskvorky/gensim/66365f6a2688e32ada86d5f005d550d4b4f8a137/{GENSIM}", WORDSIM),
            *_files("word-eval", f"{GITHUB}/piskvorky/gensim/57b3f68b18074a894585106bb4267031619b1350/{GENSIM}", SIMLEX),
            *_files("word-eval", f"{GITHUB}/tmikolov/word2vec/20c129af10659f7c50e86e3be406df663beff438", GOOGLE_ANALOGIES),
            *_files("word-eval", f"{CHINESE_VECTORS}/b2f76767356a4dbc464d67b5dda3082ed5fba3ee/testsets/CA8", CA8),
            *_files(
                "word-eval", f"{CHINESE_VECTORS}/ac7377ce11e29c92695d229e0fc7b04df11059bb/testsets/CA_translated", CA_TRANSLATED
            ),
        ),
        note="The Chinese analogies come from https://github.com/Embedding/Chinese-Word-Vectors.",
    ),
    "stories260K": Corpus(
        name="stories260K",
        title="stories260K, a Llama-style decoder of 260 thousand weights trained on short stories, and its tokenizer",
        licence="MIT",
        page="https://huggingface.co/karpathy/tinyllamas",
        files=_files(
            "stories260K",
            "https://huggingface.co/karpathy/tinyllamas/resolve/0bd21da7698eaf29a0d7de3992de8a46ef624add/stories260K",
            STORIES260K,
        ),
        note="In the binary format of https://github.com/karpathy/llama2.c.",
    ),
    "bpe-vocabs": Corpus(
        name="bpe-vocabs",
        title="the byte-level vocabularies of GPT-2 (50,257 tokens) and GPT-4 (cl100k_base)",
        licence="MIT",
        page="https://github.com/openai/tiktoken",
        files=(
            *_files("bpe-vocabs/gpt2", f"{OPENAI}/gpt-2/encodings/main", GPT2),
            *_files("bpe-vocabs/tiktoken", f"{OPENAI}/encodings", CL100K),
        ),
    ),
}
