//! Continues a text.

use akunu::{Model, Options, Settings, hub::Hub};

fn main() -> akunu::Result<()> {
    let model = Model::load(Hub::from_env()?.resolve("smollm2")?, &Options::default())?;
    let settings = Settings { max_tokens: Some(32), ..Settings::default() };
    for piece in model.generate("The capital of France is", &settings)? {
        print!("{}", piece?.text);
    }
    Ok(())
}
