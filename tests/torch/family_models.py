"""Small models of the families that people train, with random weights: one function each, listed in FAMILIES.

A function returns a job: model, inputs (arguments as gtc.export takes them), target (None when the output is the loss) and loss.
Everything is seeded by the caller. Dropout and stochastic depth are 0: nothing random can be compared.
"""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, SEQ, VOCAB, CLASSES = 4, 12, 61, 7


def classifier(model, size=32, channels=3):
    """A model of images, and classes to tell."""
    return dict(model=model, inputs=(torch.randn(BATCH, channels, size, size),), target=torch.randint(0, CLASSES, (BATCH,)), loss=F.cross_entropy)


def tokens(seq=SEQ, vocab=VOCAB):
    """Random tokens, none of them a special one."""
    return torch.randint(3, vocab, (BATCH, seq))


def token_loss(logits, target):
    """Cross entropy at each position."""
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


def language(model, inputs=None):
    """A model of tokens to logits of tokens, with an attention mask as tokenizers give it."""
    inputs = inputs or {"input_ids": tokens(), "attention_mask": torch.ones(BATCH, SEQ, dtype=torch.int64)}
    return dict(model=model, inputs=inputs, target=tokens(), loss=token_loss)


def unmasked(job):
    """The job with the tokens as its only input."""
    return job | {"inputs": {"input_ids": job["inputs"]["input_ids"]}}


# Images: torchvision.


def resnet():
    from torchvision.models.resnet import BasicBlock, ResNet

    return classifier(ResNet(BasicBlock, [1, 1, 1, 1], num_classes=CLASSES), 64)


def resnet_bottleneck():
    from torchvision.models.resnet import Bottleneck, ResNet

    model = ResNet(Bottleneck, [1, 1, 1, 1], num_classes=CLASSES, groups=4, width_per_group=8)
    model.fc.weight.data *= 0.1  # with larger ones the first updates throw it far off, and two runs in float32 part
    return classifier(model, 64)


def mobilenet_v2():
    from torchvision.models import MobileNetV2

    settings = [[1, 8, 1, 1], [6, 16, 2, 2], [6, 24, 1, 2]]
    return classifier(MobileNetV2(CLASSES, width_mult=0.5, inverted_residual_setting=settings, dropout=0.0), 48)


def mobilenet_v3():
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    def block(i, k, e, o, se, act, s):
        return InvertedResidualConfig(i, k, e, o, se, act, s, 1, 0.5)

    blocks = [block(16, 3, 16, 16, True, "RE", 2), block(16, 5, 48, 24, False, "HS", 2), block(24, 5, 48, 24, True, "HS", 1)]
    return classifier(MobileNetV3(blocks, 64, num_classes=CLASSES, dropout=0.0), 48)


def efficientnet():
    from torchvision.models.efficientnet import EfficientNet, FusedMBConvConfig, MBConvConfig

    blocks = [FusedMBConvConfig(1, 3, 1, 8, 8, 1), FusedMBConvConfig(4, 3, 2, 8, 16, 1), MBConvConfig(4, 5, 2, 16, 24, 2)]
    return classifier(EfficientNet(blocks, dropout=0.0, stochastic_depth_prob=0.0, num_classes=CLASSES, last_channel=48), 48)


def densenet():
    from torchvision.models import DenseNet

    return classifier(DenseNet(growth_rate=8, block_config=(2, 2), num_init_features=16, bn_size=2, num_classes=CLASSES), 48)


def convnext():
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return classifier(ConvNeXt([CNBlockConfig(16, 32, 1), CNBlockConfig(32, None, 1)], stochastic_depth_prob=0.0, layer_scale=0.5, num_classes=CLASSES))


def vit():
    from torchvision.models import VisionTransformer

    model = VisionTransformer(image_size=32, patch_size=8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64, num_classes=CLASSES)
    nn.init.normal_(model.heads.head.weight, std=0.1)
    return classifier(model)


def swin():
    from torchvision.models import SwinTransformer

    return classifier(SwinTransformer([2, 2], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=CLASSES))


def shufflenet():
    from torchvision.models import ShuffleNetV2

    return classifier(ShuffleNetV2([2, 2, 2], [8, 16, 24, 32, 48], num_classes=CLASSES), 64)


def squeezenet():
    from torchvision.models.squeezenet import Fire

    body = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(16, 8, 16, 16), nn.MaxPool2d(3, 2, ceil_mode=True),
                         Fire(32, 8, 16, 16), nn.Conv2d(32, CLASSES, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return classifier(body, 48)


def deeplab():
    """Dilated convolutions, pooling to one pixel, and bilinear resizing up: DeepLab v3's head."""
    from torchvision.models.segmentation.deeplabv3 import ASPP

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
            self.aspp = ASPP(16, [2, 4], 16)
            self.aspp.project[-1].p = 0.0
            self.head = nn.Conv2d(16, CLASSES, 1)

        def forward(self, x):
            y = self.head(self.aspp(self.stem(x)))
            return F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)

    return dict(model=Net(), inputs=(torch.randn(BATCH, 3, 24, 24),), target=torch.randint(0, CLASSES, (BATCH, 24, 24)), loss=F.cross_entropy)


# Images: timm.


def timm_model(name, size=64, **options):
    import timm

    return classifier(timm.create_model(name, num_classes=CLASSES, drop_rate=0.0, drop_path_rate=0.0, **options), size)


# Images: written here.


class UNet(nn.Module):
    """Two levels, transposed convolutions or bilinear resizing on the way up, concatenated skips."""

    def __init__(self, bilinear):
        super().__init__()

        def double(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

        self.in1, self.in2, self.in3 = double(3, 8), double(8, 16), double(16, 32)
        up = lambda i, o: nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(i, o, 1)) if bilinear else nn.ConvTranspose2d(i, o, 2, 2)  # noqa: E731
        self.up2, self.up1 = up(32, 16), up(16, 8)
        self.out2, self.out1 = double(32, 16), double(16, 8)
        self.head = nn.Conv2d(8, CLASSES, 1)

    def forward(self, x):
        a = self.in1(x)
        b = self.in2(F.max_pool2d(a, 2))
        c = self.in3(F.max_pool2d(b, 2))
        b = self.out2(torch.cat([b, self.up2(c)], 1))
        return self.head(self.out1(torch.cat([a, self.up1(b)], 1)))


def unet(bilinear=False):
    return dict(model=UNet(bilinear), inputs=(torch.randn(BATCH, 3, 16, 16),), target=torch.randint(0, CLASSES, (BATCH, 16, 16)), loss=F.cross_entropy)


class VAE(nn.Module):
    """The loss, reconstruction and divergence, is the output; the noise is an input."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(1, 8, 3, 2, 1), nn.GELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.GELU(), nn.Flatten())
        self.mean, self.logvar = nn.Linear(16 * 16, 8), nn.Linear(16 * 16, 8)
        self.decode = nn.Sequential(nn.Linear(8, 256), nn.GELU(), nn.Unflatten(1, (16, 4, 4)), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(8, 1, 4, 2, 1))

    def forward(self, image, eps):
        h = self.encode(image)
        mean, logvar = self.mean(h), self.logvar(h)
        logits = self.decode(mean + eps * torch.exp(0.5 * logvar))
        rec = F.binary_cross_entropy_with_logits(logits, image, reduction="sum")
        return (rec - 0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())) / image.shape[0] / 100


def vae():
    return dict(model=VAE(), inputs=(torch.rand(BATCH, 1, 16, 16), torch.randn(BATCH, 8)), target=None, loss=None)


def gan_generator():
    """DCGAN's generator: transposed convolutions with batch normalisation."""
    model = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True), nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh())
    return dict(model=model, inputs=(torch.randn(BATCH, 16, 1, 1),), target=torch.rand(BATCH, 3, 16, 16) * 2 - 1, loss=F.mse_loss)


def gan_discriminator():
    """Strided convolutions, leaky ReLU, instance normalisation."""
    model = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(16, 32, 4, 2, 1), nn.InstanceNorm2d(32, affine=True), nn.LeakyReLU(0.2), nn.Conv2d(32, 1, 4), nn.Flatten(), nn.Sigmoid())
    return dict(model=model, inputs=(torch.randn(BATCH, 3, 16, 16),), target=torch.rand(BATCH, 1), loss=F.mse_loss)


# Text: transformers.

SMALL = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32)
QUIET = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def masked(seq=SEQ):
    """Tokens with an attention mask, two of whose rows end early."""
    mask = torch.ones(BATCH, seq, dtype=torch.int64)
    mask[1, seq - 3 :] = 0
    mask[2, seq - 5 :] = 0
    return {"input_ids": tokens(seq), "attention_mask": mask}


def sequence(model):
    """A model of texts, and classes to tell."""
    return dict(model=model, inputs=masked(), target=torch.randint(0, CLASSES, (BATCH,)), loss=F.cross_entropy)


def bert():
    from transformers import BertConfig, BertForSequenceClassification

    return sequence(BertForSequenceClassification(BertConfig(**SMALL, **QUIET, num_labels=CLASSES)))


def bert_mlm():
    from transformers import BertConfig, BertForMaskedLM

    return language(BertForMaskedLM(BertConfig(**SMALL, **QUIET)), masked())


def bert_eager():
    from transformers import BertConfig, BertForSequenceClassification

    return sequence(BertForSequenceClassification(BertConfig(**SMALL, **QUIET, num_labels=CLASSES, attn_implementation="eager")))


def roberta():
    from transformers import RobertaConfig, RobertaForMaskedLM

    return language(RobertaForMaskedLM(RobertaConfig(**SMALL, **QUIET, pad_token_id=1)), masked())


def distilbert():
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    config = DistilBertConfig(vocab_size=VOCAB, dim=32, hidden_dim=64, n_layers=2, n_heads=4, max_position_embeddings=32, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, num_labels=CLASSES)
    return sequence(DistilBertForSequenceClassification(config))


def electra():
    from transformers import ElectraConfig, ElectraForTokenClassification

    model = ElectraForTokenClassification(ElectraConfig(**SMALL, **QUIET, embedding_size=16, num_labels=CLASSES))
    return dict(model=model, inputs=masked(), target=torch.randint(0, CLASSES, (BATCH, SEQ)), loss=token_loss)


def albert():
    from transformers import AlbertConfig, AlbertForMaskedLM

    return language(AlbertForMaskedLM(AlbertConfig(**SMALL, **QUIET, embedding_size=16, classifier_dropout_prob=0.0)))


def deberta():
    from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

    config = DebertaV2Config(**SMALL, **QUIET, relative_attention=True, max_relative_positions=16, position_buckets=8, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True, num_labels=CLASSES, pooler_dropout=0.0)
    return sequence(DebertaV2ForSequenceClassification(config))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return language(GPT2LMHeadModel(GPT2Config(vocab_size=VOCAB, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)))


def gpt_neox():
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    return language(GPTNeoXForCausalLM(GPTNeoXConfig(**SMALL, rotary_pct=0.5, hidden_dropout=0.0, attention_dropout=0.0)))


def opt_lm():
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(vocab_size=VOCAB, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32, word_embed_proj_dim=32, dropout=0.0, attention_dropout=0.0)
    return language(OPTForCausalLM(config))


def bloom():
    from transformers import BloomConfig, BloomForCausalLM

    return language(BloomForCausalLM(BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=2, n_head=4, hidden_dropout=0.0, attention_dropout=0.0)))


def decoder(name, **options):
    """A causal language model of transformers with grouped key and value heads."""
    import transformers

    config = (getattr(transformers, name + "TextConfig", None) or getattr(transformers, name + "Config"))(**{**SMALL, "num_key_value_heads": 2, "attention_dropout": 0.0, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **options})
    return language(getattr(transformers, name + "ForCausalLM")(config))


def t5():
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=VOCAB, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, relative_attention_num_buckets=8, relative_attention_max_distance=16, dropout_rate=0.0, decoder_start_token_id=0)
    return language(T5ForConditionalGeneration(config), {**masked(), "decoder_input_ids": tokens()})


def bart():
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(vocab_size=VOCAB, d_model=32, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=32, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    return language(BartForConditionalGeneration(config), {**masked(), "decoder_input_ids": tokens()})


def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=VOCAB, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_source_positions=16, max_target_positions=16, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return language(WhisperForConditionalGeneration(config), {"input_features": torch.randn(BATCH, 16, 32), "decoder_input_ids": tokens(), "decoder_attention_mask": torch.ones(BATCH, SEQ, dtype=torch.int64)})


def wav2vec2():
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    config = Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, conv_dim=(16, 16), conv_stride=(5, 2), conv_kernel=(10, 3), num_feat_extract_layers=2, num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2, hidden_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0, final_dropout=0.0, layerdrop=0.0, activation_dropout=0.0, mask_time_prob=0.0, classifier_proj_size=16, num_labels=CLASSES, apply_spec_augment=False)
    return dict(model=Wav2Vec2ForSequenceClassification(config), inputs=(torch.randn(BATCH, 400),), target=torch.randint(0, CLASSES, (BATCH,)), loss=F.cross_entropy)


def clip():
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

    text = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16, bos_token_id=1, eos_token_id=2)
    vision = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=8)
    model = CLIPModel(CLIPConfig(text_config=CLIPTextConfig(**text).to_dict(), vision_config=CLIPVisionConfig(**vision).to_dict(), projection_dim=16))
    return dict(model=model, inputs={"input_ids": tokens(), "pixel_values": torch.randn(BATCH, 3, 16, 16)}, target=torch.arange(BATCH), loss=F.cross_entropy)


def vit_hf():
    from transformers import ViTConfig, ViTForImageClassification

    return classifier(ViTForImageClassification(ViTConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8, num_labels=CLASSES, **QUIET)))


# Recurrent networks.


class Tagger(nn.Module):
    """Embedding, a recurrent network, and a class for each token. `packed` sequences end where `lengths` says."""

    def __init__(self, cell, packed=False, **options):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, 16, padding_idx=0)
        self.rnn = cell(16, 24, num_layers=2, batch_first=True, **options)
        self.head = nn.Linear(24 * (2 if self.rnn.bidirectional else 1), CLASSES)
        self.packed = packed

    def forward(self, ids, lengths=None):
        x = self.embed(ids)
        if self.packed:
            x = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=True)
        y, _ = self.rnn(x)
        if self.packed:
            y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=ids.shape[1])
        return self.head(y)


def tagger(cell, packed=False, **options):
    inputs = (tokens(8), torch.tensor([8, 7, 5, 2])) if packed else (tokens(8),)
    return dict(model=Tagger(cell, packed, **options), inputs=inputs, target=torch.randint(0, CLASSES, (BATCH, 8)), loss=token_loss)


class LastState(nn.Module):
    """The final hidden state of a time-first network classifies."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(8, 12, bidirectional=True)
        self.head = nn.Linear(24, CLASSES)

    def forward(self, x):
        _, (h, _) = self.rnn(x.transpose(0, 1))
        return self.head(torch.cat([h[0], h[1]], 1))


class CellLoop(nn.Module):
    """A Python loop over an LSTMCell, from a learned first state."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(8, 12)
        self.h0, self.c0 = nn.Parameter(torch.randn(12) * 0.1), nn.Parameter(torch.randn(12) * 0.1)
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x):
        h, c = self.h0.expand(x.shape[0], -1), self.c0.expand(x.shape[0], -1)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return self.head(h)


def sequence_of_vectors(model):
    return dict(model=model, inputs=(torch.randn(BATCH, 6, 8),), target=torch.randint(0, CLASSES, (BATCH,)), loss=F.cross_entropy)


# Mixtures of experts.


class DenseMoE(nn.Module):
    """Every expert computes every token; the gate's weights, zero but for the best two, add them up."""

    def __init__(self, width=16, experts=4, k=2):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up, self.down = nn.Parameter(torch.randn(experts, width, 32) * 0.2), nn.Parameter(torch.randn(experts, 32, width) * 0.2)
        self.k = k

    def forward(self, x):
        weight, chosen = torch.topk(F.softmax(self.gate(x), -1), self.k)
        gates = torch.zeros(*x.shape[:-1], self.up.shape[0], dtype=x.dtype).scatter(-1, chosen, weight / weight.sum(-1, keepdim=True))
        h = F.silu(torch.einsum("btd,edh->bteh", x, self.up))
        return torch.einsum("bteh,ehd,bte->btd", h, self.down, gates)


class GatherMoE(DenseMoE):
    """Each token gathers the weights of its best experts."""

    def forward(self, x):
        weight, chosen = torch.topk(F.softmax(self.gate(x), -1), self.k)
        h = F.silu(torch.einsum("btd,btkdh->btkh", x, self.up[chosen]))
        return torch.einsum("btkh,btkhd,btk->btd", h, self.down[chosen], weight)


class WithHead(nn.Module):
    """Embedding, a layer with a residual connection and a norm, a head."""

    def __init__(self, layer, width=16):
        super().__init__()
        self.embed, self.layer = nn.Embedding(VOCAB, width), layer
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB)

    def forward(self, ids):
        x = self.embed(ids)
        return self.head(self.norm(x + self.layer(x)))


# Selective scans.


class SelectiveScan(nn.Module):
    """Mamba's layer: a causal depthwise convolution and a recurrence whose step sizes and projections depend on the input."""

    def __init__(self, width=16, state=4, rank=2):
        super().__init__()
        inner = 2 * width
        self.into, self.out = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
        self.project, self.dt = nn.Linear(inner, rank + 2 * state, bias=False), nn.Linear(rank, inner)
        self.a_log = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(inner, 1))
        self.d = nn.Parameter(torch.ones(inner))
        self.state, self.rank = state, rank

    def forward(self, x):
        u, z = self.into(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        dt, b, c = self.project(u).split([self.rank, self.state, self.state], -1)
        dt = F.softplus(self.dt(dt))
        decay = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.a_log))
        drive = (dt * u).unsqueeze(-1) * b.unsqueeze(2)
        h, ys = torch.zeros_like(drive[:, 0]), []
        for t in range(x.shape[1]):
            h = decay[:, t] * h + drive[:, t]
            ys.append((h * c[:, t].unsqueeze(1)).sum(-1))
        return self.out((torch.stack(ys, 1) + u * self.d) * F.silu(z))


def mamba_hf():
    from transformers import MambaConfig, MambaForCausalLM

    return language(MambaForCausalLM(MambaConfig(vocab_size=VOCAB, hidden_size=16, state_size=4, num_hidden_layers=1, time_step_rank=2, pad_token_id=0)), {"input_ids": tokens(6)}) | {"target": tokens(6)}


class Volumes(nn.Module):
    """Convolutions, their transposes and pools over three dims: strides, dilations, groups, paddings."""

    def __init__(self):
        super().__init__()
        self.down = nn.Conv3d(2, 8, 3, stride=(1, 2, 1), padding=1)
        self.wide = nn.Conv3d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.up = nn.ConvTranspose3d(8, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        x = F.max_pool3d(F.relu(self.down(x)), 2, padding=1)
        x = self.up(F.gelu(self.wide(x)))
        x = F.avg_pool3d(x, 3, 2, padding=1, count_include_pad=False)
        return self.head(F.max_pool3d(x, (2, 1, 1), ceil_mode=True).amax((-1, -2, -3)))


def volumes():
    return dict(model=Volumes(), inputs=(torch.randn(BATCH, 2, 5, 8, 6),), target=torch.randint(0, CLASSES, (BATCH,)), loss=F.cross_entropy)


class Indexing(nn.Module):
    """Choosing, reading and writing by positions that depend on the data."""

    def __init__(self, width=6):
        super().__init__()
        self.score, self.value, self.head = nn.Linear(width, 1), nn.Linear(width, width), nn.Linear(width, CLASSES)

    def forward(self, x):
        score, value = self.score(x).squeeze(-1), self.value(x)  # [batch, seq], [batch, seq, width]
        best, at = score.topk(5, dim=1)
        rows = at.unsqueeze(-1).expand(-1, -1, value.shape[-1])
        chosen = value.gather(1, rows) * best.unsqueeze(-1)
        summed = torch.zeros_like(value).scatter_add(1, rows, chosen)
        put = value.scatter(1, rows, chosen.tanh())
        highest = value.scatter_reduce(1, (rows + 1) % value.shape[1], chosen, "amax", include_self=True)
        ordered, _ = value.sort(dim=1, descending=True)
        running = torch.cumsum(ordered, 1) + ordered.flip(1)
        pooled = F.max_pool1d(put.transpose(1, 2), 3, 2, ceil_mode=True).transpose(1, 2)
        return self.head(torch.cat([summed, highest, running, pooled], 1).mean(1))


def indexing():
    return dict(model=Indexing(), inputs=(torch.randn(BATCH, SEQ, 6),), target=torch.randint(0, CLASSES, (BATCH,)), loss=F.cross_entropy)


FAMILIES = {
    "resnet": resnet,
    "resnet_bottleneck": resnet_bottleneck,
    "mobilenet_v2": mobilenet_v2,
    "mobilenet_v3": mobilenet_v3,
    "efficientnet": efficientnet,
    "densenet": densenet,
    "convnext": convnext,
    "vit": vit,
    "swin": swin,
    "shufflenet": shufflenet,
    "squeezenet": squeezenet,
    "deeplab": deeplab,
    "timm_resnet": lambda: timm_model("test_resnet"),
    "timm_vit": lambda: timm_model("test_vit", 160),
    "timm_efficientnet": lambda: timm_model("test_efficientnet"),
    "timm_convnext": lambda: timm_model("test_convnext"),
    "timm_byobnet": lambda: timm_model("test_byobnet"),
    "timm_nfnet": lambda: timm_model("test_nfnet"),
    "timm_mambaout": lambda: timm_model("test_mambaout"),
    "timm_mixer": lambda: timm_model("mixer_s32_224", 64, img_size=64, embed_dim=32, num_blocks=2),
    "unet": unet,
    "unet_bilinear": lambda: unet(True),
    "vae": vae,
    "gan_generator": gan_generator,
    "gan_discriminator": gan_discriminator,
    "vit_hf": vit_hf,
    "clip": clip,
    "bert": bert,
    "bert_eager": bert_eager,
    "bert_mlm": bert_mlm,
    "roberta": roberta,
    "distilbert": distilbert,
    "electra": electra,
    "albert": albert,
    "deberta": deberta,
    "gpt2": gpt2,
    "gpt2_unmasked": lambda: unmasked(gpt2()),
    "gpt_neox": gpt_neox,
    "opt": opt_lm,
    "bloom": bloom,
    "llama": lambda: decoder("Llama"),
    "llama_unmasked": lambda: unmasked(decoder("Llama")),
    "mistral": lambda: decoder("Mistral", sliding_window=6),
    "qwen2": lambda: decoder("Qwen2"),
    "qwen3": lambda: decoder("Qwen3", head_dim=8),
    "gemma": lambda: decoder("Gemma", head_dim=8),
    "gemma2": lambda: decoder("Gemma2", head_dim=8, sliding_window=6),
    "gemma3": lambda: decoder("Gemma3", head_dim=8, sliding_window=6),
    "phi3": lambda: decoder("Phi3"),
    "mixtral": lambda: decoder("Mixtral", num_local_experts=4, num_experts_per_tok=2, experts_implementation="batched_mm"),
    "qwen3_moe": lambda: decoder("Qwen3Moe", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, experts_implementation="batched_mm"),
    "t5": t5,
    "bart": bart,
    "whisper": whisper,
    "wav2vec2": wav2vec2,
    "lstm": lambda: tagger(nn.LSTM),
    "lstm_bidirectional": lambda: tagger(nn.LSTM, bidirectional=True),
    "lstm_packed": lambda: tagger(nn.LSTM, packed=True, bidirectional=True),
    "lstm_last": lambda: sequence_of_vectors(LastState()),
    "lstm_cell": lambda: sequence_of_vectors(CellLoop()),
    "gru": lambda: tagger(nn.GRU),
    "gru_bidirectional": lambda: tagger(nn.GRU, bidirectional=True),
    "gru_packed": lambda: tagger(nn.GRU, packed=True),
    "rnn": lambda: tagger(nn.RNN),
    "rnn_relu_bidirectional": lambda: tagger(nn.RNN, nonlinearity="relu", bidirectional=True),
    "moe_dense": lambda: language(WithHead(DenseMoE()), (tokens(),)),
    "moe_gather": lambda: language(WithHead(GatherMoE()), (tokens(),)),
    "selective_scan": lambda: language(WithHead(SelectiveScan()), (tokens(),)),
    "mamba": mamba_hf,
    "volumes": volumes,
    "indexing": indexing,
}
