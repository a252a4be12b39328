//! Templates for models that come without one, by the name of their family.
//!
//! They know plain conversations, and refuse tools: definitions must stand in the system prompt.

/// The source of a built-in template.
pub(super) fn source(name: &str) -> Option<String> {
    let body = match name {
        "chatml" => CHATML,
        "llama2" => LLAMA2,
        "llama3" => LLAMA3,
        "gemma" => GEMMA,
        "mistral" => MISTRAL,
        "phi3" => PHI3,
        _ => return None,
    };
    Some([SHARED, body].concat())
}

/// The names of the built-in templates.
pub const BUILTIN_NAMES: [&str; 6] = ["chatml", "llama2", "llama3", "gemma", "mistral", "phi3"];

/// What they say when they are given tools.
pub(super) const NO_TOOLS: &str = "this built-in template cannot describe tools to the model";

/// What all of them begin with: `words(message)` is the text of a message, whatever shape its content has.
const SHARED: &str = r#"
{%- if tools %}
    {{- raise_exception('this built-in template cannot describe tools to the model') }}
{%- endif %}
{%- macro words(message) %}
    {%- if message.content is string %}
        {{- message.content }}
    {%- else %}
        {%- for part in message.content or [] %}
            {%- if part.type != 'text' %}
                {{- raise_exception('this built-in template cannot show a part of type ' ~ part.type) }}
            {%- endif %}
            {{- part.text }}
        {%- endfor %}
    {%- endif %}
{%- endmacro %}
{%- macro opening_system() %}
    {%- if messages and messages[0].role in ['system', 'developer'] %}
        {{- words(messages[0]) }}
    {%- endif %}
{%- endmacro %}
{%- set turns = messages[1:] if messages and messages[0].role in ['system', 'developer'] else messages %}
"#;

const CHATML: &str = r#"
{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ words(message) ~ '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"#;

const LLAMA3: &str = r#"
{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' ~ message.role ~ '<|end_header_id|>\n\n' ~ words(message) | trim ~ '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"#;

const LLAMA2: &str = r#"
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {{- bos_token ~ '[INST] ' }}
        {%- if loop.first and opening_system() %}
            {{- '<<SYS>>\n' ~ opening_system() ~ '\n<</SYS>>\n\n' }}
        {%- endif %}
        {{- words(message) | trim ~ ' [/INST]' }}
    {%- elif message.role == 'assistant' %}
        {{- ' ' ~ words(message) | trim ~ ' ' ~ eos_token }}
    {%- else %}
        {{- raise_exception('Llama 2 has no way to show a message of the role ' ~ message.role) }}
    {%- endif %}
{%- endfor %}
"#;

const GEMMA: &str = r#"
{{- bos_token }}
{%- for message in turns %}
    {%- if message.role not in ['user', 'assistant'] %}
        {{- raise_exception('Gemma has no way to show a message of the role ' ~ message.role) }}
    {%- endif %}
    {{- '<start_of_turn>' ~ ('model' if message.role == 'assistant' else 'user') ~ '\n' }}
    {%- if loop.first and opening_system() %}
        {{- opening_system() | trim ~ '\n\n' }}
    {%- endif %}
    {{- words(message) | trim ~ '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %}
"#;

const MISTRAL: &str = r#"
{{- bos_token }}
{%- for message in turns %}
    {%- if message.role == 'user' %}
        {{- '[INST] ' }}
        {%- if loop.first and opening_system() %}
            {{- opening_system() ~ '\n\n' }}
        {%- endif %}
        {{- words(message) ~ ' [/INST]' }}
    {%- elif message.role == 'assistant' %}
        {{- ' ' ~ words(message) | trim ~ eos_token }}
    {%- else %}
        {{- raise_exception('Mistral has no way to show a message of the role ' ~ message.role) }}
    {%- endif %}
{%- endfor %}
"#;

const PHI3: &str = r#"
{{- bos_token }}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant'] %}
        {{- raise_exception('Phi-3 has no way to show a message of the role ' ~ message.role) }}
    {%- endif %}
    {{- '<|' ~ message.role ~ '|>\n' ~ words(message) ~ '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>\n' }}
{%- endif %}
"#;
