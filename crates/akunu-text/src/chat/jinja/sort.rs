//! A stable sort whose comparison may fail, and which stays sane when the comparison is not an order (NaN).

use super::error::Result;

pub(super) fn stable_sort<T>(items: Vec<T>, less: &mut dyn FnMut(&T, &T) -> Result<bool>) -> Result<Vec<T>> {
    if items.len() < 2 {
        return Ok(items);
    }
    let mut left = items;
    let right = left.split_off(left.len() / 2);
    let left = stable_sort(left, less)?;
    let right = stable_sort(right, less)?;
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let take_right = less(b, a)?;
        merged.extend(if take_right { right.next() } else { left.next() });
    }
    merged.extend(left);
    merged.extend(right);
    Ok(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_items_keep_their_order() {
        let items = vec![(2, 'a'), (1, 'b'), (2, 'c'), (1, 'd'), (0, 'e')];
        let sorted = stable_sort(items, &mut |a, b| Ok(a.0 < b.0)).unwrap();
        assert_eq!(sorted, [(0, 'e'), (1, 'b'), (1, 'd'), (2, 'a'), (2, 'c')]);
    }

    #[test]
    fn survives_a_comparison_that_is_no_order() {
        let items = vec![f64::NAN, 1.0, f64::NAN, 0.0];
        assert_eq!(stable_sort(items, &mut |a, b| Ok(a < b)).unwrap().len(), 4);
    }
}
