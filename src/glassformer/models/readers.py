"""Which model reads a text: one answer for all of it, or one for each token."""

from glassformer.models.bert import Bert, PooledHead, TokenHead
from glassformer.models.heads import LinearHead
from glassformer.models.mlp import MLP
from glassformer.models.rnn import RecurrentReader
from glassformer.models.textcnn import TextCNN
from glassformer.options import BertOptions, MLPOptions, RnnOptions, TextCNNOptions

ReaderOptions = BertOptions | RnnOptions | TextCNNOptions | MLPOptions
ReaderModel = Bert | RecurrentReader | TextCNN | MLP


def pooled(options: ReaderOptions, vocabulary: int, outputs: int, pad: int) -> ReaderModel:
    """One answer for a text."""
    if isinstance(options, TextCNNOptions):
        return TextCNN(options, vocabulary, outputs, pad)
    if isinstance(options, MLPOptions):
        return MLP(options, vocabulary, outputs, pad)
    if isinstance(options, RnnOptions):
        ahead = options.width // (2 if options.bidirectional else 1)
        head = LinearHead(options.width, outputs, pooling=options.pooling, dropout=0.0, ahead=ahead)  # states had dropout
        return RecurrentReader(options, vocabulary, head, pad)
    return Bert(options, vocabulary, PooledHead(options, outputs), pad)


def each_token(options: ReaderOptions, vocabulary: int, outputs: int, pad: int) -> ReaderModel:
    """An answer for each token."""
    if isinstance(options, RnnOptions):
        return RecurrentReader(options, vocabulary, TokenHead(options, outputs), pad)
    assert isinstance(options, BertOptions)
    return Bert(options, vocabulary, TokenHead(options, outputs), pad)
