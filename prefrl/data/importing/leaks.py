"""Answers in which a model says who it is, which people must not know while they compare."""

from __future__ import annotations

import re

_MODELS = (
    "ChatGPT|GPT-?\\d[\\w.-]*|OpenAI(?:'s)? \\w+|Claude|Gemini|Bard|PaLM|Gemma|LLaMA|Llama|Qwen|Tongyi|DeepSeek|"
    "Mistral|Mixtral|Grok|Copilot|Phi-?\\d|Vicuna|Alpaca|Koala|OLMo|T[uü]lu|Command R|Yi-\\d|ChatGLM|GLM-?\\d|Kimi|"
    "MiniMax|Nova|SmolLM\\w*|Falcon|Zephyr|InternLM|Baichuan|ERNIE|Dolly|StableLM|OpenAssistant"
)
_MAKERS = (
    "OpenAI|Anthropic|Google(?: DeepMind)?|DeepMind|Meta(?: AI)?|Microsoft|Alibaba(?: Cloud)?|DeepSeek|Mistral(?: AI)?|"
    "xAI|Hugging ?Face|Cohere|Amazon|NVIDIA|Baidu|Moonshot(?: AI)?|Zhipu(?: AI)?|Tencent|Stability AI|LMSYS|AI2|01\\.AI"
)
_SELF = re.compile(
    rf"\b(?:(?:I\s*am|I['’]m|my name is|call me|this is|as)\s+(?:an?\s+|the\s+)?(?:{_MODELS})\b"  # noqa: RUF001
    rf"|(?:I|me|assistant|(?:language )?model)\b[^.!?\n]{{0,60}}?\b(?:made|created|developed|trained|built) (?:at|by) "
    rf"(?:{_MAKERS})\b)|我是(?:{_MODELS}|通义千问|文心一言)|由(?:{_MAKERS}|阿里云|百度)(?:开发|训练|创建)",
    re.IGNORECASE,
)


def names_itself(text: str) -> bool:
    """Whether a text reads like a model that names itself or its maker; a guess that errs to both sides."""
    return _SELF.search(text) is not None
