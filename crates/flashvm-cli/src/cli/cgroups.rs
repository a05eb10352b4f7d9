//! The list of a process's cgroups, as `/proc/self/cgroup` has it (cgroups(7)).

/// The controllers and the path of each line. Version 2 names no controllers.
pub(crate) fn lines(list: &str) -> impl Iterator<Item = (&str, &str)> {
    list.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_have_colons_and_broken_lines_are_left_out() {
        let list = "3:cpu,memory:/a:b\nnothing\n1:name\n0::/\n";
        let found: Vec<_> = lines(list).collect();
        assert_eq!(found, [("cpu,memory", "/a:b"), ("", "/")]);
    }
}
