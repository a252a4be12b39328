//! How families call tools, as their own templates show it.

use akunu_text::chat::ToolSyntax;

#[test]
fn real_templates_show_how_their_family_calls_tools() {
    let known = [
        ("Bielik-11B-v3.0-Instruct", "hermes"),
        ("MiMo-VL", "hermes"),
        ("Mistral-Small-3.2-24B-Instruct-2506", "mistral-args"),
        ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes"),
        ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "hermes"),
        ("Qwen-QwQ-32B", "hermes"),
        ("Qwen-Qwen2.5-7B-Instruct", "hermes"),
        ("Qwen-Qwen3-0.6B", "hermes"),
        ("Reka-Edge", "hermes"),
        ("ibm-granite-granite-4.0", "hermes"),
        ("ibm-granite-granite-4.1", "hermes"),
        ("meta-llama-Llama-3.1-8B-Instruct", "llama3"),
        ("meta-llama-Llama-3.2-3B-Instruct", "llama3"),
        ("meta-llama-Llama-3.3-70B-Instruct", "llama3"),
        ("mistralai-Ministral-3-14B-Reasoning-2512", "mistral-args"),
        ("mistralai-Mistral-Nemo-Instruct-2407", "mistral"),
        ("unsloth-mistral-Devstral-Small-2507", "mistral-args"),
    ];
    let mut found = Vec::new();
    for entry in std::fs::read_dir(akunu_testing::data("templates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let source = std::fs::read_to_string(&path).unwrap();
        // Others are told of tools in words, or refused.
        if let Some(syntax) = ToolSyntax::of_template(&source).filter(|syntax| syntax.is_in_template()) {
            found.push((name, syntax.name));
        }
    }
    found.sort();
    assert_eq!(found, known.map(|(name, syntax)| (name.to_owned(), syntax)));
}
