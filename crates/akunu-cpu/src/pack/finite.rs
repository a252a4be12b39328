//! Looking for numbers that are not finite.

/// The bits of an exponent that are all set where a number is not finite.
const F32_EXPONENT: u32 = 0x7F80_0000;
pub(super) const F16_EXPONENT: u16 = 0x7C00;
pub(super) const BF16_EXPONENT: u16 = 0x7F80;

/// Numbers that are looked at before anything hangs on what was seen: there is hardly ever a bad one.
const MANY: usize = 1024;

/// The first of some numbers of two bytes that is not finite.
pub(super) fn first_bad_16(numbers: &[u8], exponent: u16) -> Option<usize> {
    first(numbers.as_chunks().0, |number: &[u8; 2]| u16::from_le_bytes(*number) & exponent == exponent)
}

/// The first of some numbers of four bytes that is not finite.
pub(super) fn first_bad_32(numbers: &[u8]) -> Option<usize> {
    first(numbers.as_chunks().0, |number: &[u8; 4]| {
        u32::from_le_bytes(*number) & F32_EXPONENT == F32_EXPONENT
    })
}

#[inline(always)]
fn first<const N: usize>(numbers: &[[u8; N]], bad: impl Fn(&[u8; N]) -> bool) -> Option<usize> {
    let any = |numbers: &[[u8; N]]| numbers.iter().fold(false, |any, number| any | bad(number));
    let many = numbers.chunks(MANY).position(any)? * MANY;
    numbers[many..].iter().position(bad).map(|at| many + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_is_found() {
        for places in [&[][..], &[0], &[1023], &[1024, 1025], &[5, 3000], &[2999]] {
            let mut numbers = vec![0x7BFFu16; 3001];
            places.iter().for_each(|place| numbers[*place] = 0xFC00);
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            assert_eq!(first_bad_16(&bytes, F16_EXPONENT), places.first().copied());
            let wide: Vec<u8> = (numbers.iter())
                .flat_map(|number| if *number == 0xFC00 { f32::NAN } else { f32::MAX }.to_le_bytes())
                .collect();
            assert_eq!(first_bad_32(&wide), places.first().copied());
        }
    }
}
