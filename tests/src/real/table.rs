//! The table of real programs.

use super::{Input, Mask, Pace, RealProgram, Requirement, Run, Server, Size};

const fn from(tool: &'static str, package: &'static str) -> Requirement {
    Requirement { tool, package }
}

const fn size(full: u32, small: u32) -> Size {
    Size { full, small }
}

/// Every row.
pub const PROGRAMS: &[RealProgram] = &[
    RealProgram {
        requires: &[from("gzip", "gzip")],
        inputs: &[Input::Text],
        size: size(800, 1),
        ..RealProgram::command("gzip", "gzip, 50 MB of text", &["gzip", "-n", "-c", "text"])
    },
    RealProgram {
        requires: &[from("xz", "xz-utils")],
        inputs: &[Input::Text],
        size: size(400, 1),
        ..RealProgram::command(
            "xz",
            "xz -T2, 25 MB of text",
            &["xz", "-T2", "-1", "-k", "-c", "text"],
        )
    },
    RealProgram {
        requires: &[from("sqlite3", "sqlite3")],
        inputs: &[Input::Workload("query.sql")],
        size: size(80_000, 50),
        ..RealProgram::command(
            "sqlite3",
            "sqlite3, joins and aggregates in memory",
            &[
                "sqlite3",
                "-batch",
                ":memory:",
                "CREATE TABLE size AS SELECT {n} AS n;",
                ".read query.sql",
            ],
        )
    },
    RealProgram {
        requires: &[from("lua5.4", "lua5.4")],
        inputs: &[Input::Workload("compute.lua")],
        size: size(300, 1),
        ..RealProgram::command(
            "lua",
            "lua5.4, a compute script",
            &["lua5.4", "compute.lua", "{n}"],
        )
    },
    RealProgram {
        requires: &[from("python3", "python3")],
        inputs: &[Input::Workload("compute.py")],
        size: size(150, 1),
        ..RealProgram::command(
            "python",
            "python3, a compute script",
            &["python3", "compute.py", "{n}"],
        )
    },
    RealProgram {
        requires: &[from("cc", "gcc")],
        inputs: &[Input::Workload("compute.c")],
        prepare: &[&["cc", "-O2", "-o", "compute", "compute.c"]],
        size: size(300, 1),
        ..RealProgram::command("compute", "a compute program in C", &["./compute", "{n}"])
    },
    RealProgram {
        requires: &[
            from("python3", "python3"),
            from("/usr/lib/python3.11/test/test_dict.py", "libpython3.11-testsuite"),
        ],
        masks: &[Mask::Numbers],
        ..RealProgram::command(
            "python-tests",
            "python3, its own test_json, test_re and test_dict",
            &["python3", "-m", "test", "test_json", "test_re", "test_dict"],
        )
    },
    RealProgram {
        requires: &[from("perl", "perl")],
        inputs: &[Input::Workload("compute.pl")],
        size: size(60, 1),
        ..RealProgram::command("perl", "perl, a compute script", &["perl", "compute.pl", "{n}"])
    },
    RealProgram {
        requires: &[from("bash", "bash")],
        inputs: &[Input::Workload("pipes.sh")],
        size: size(60, 1),
        ..RealProgram::command(
            "bash",
            "bash, pipes, subshells and traps",
            &["bash", "pipes.sh", "{n}"],
        )
    },
    RealProgram {
        requires: &[from("openssl", "openssl")],
        masks: &[Mask::Numbers],
        pace: Pace::Rate("+F"),
        size: size(2, 1),
        ..RealProgram::command(
            "openssl",
            "openssl speed, SHA-256 and AES (by its own rate)",
            &[
                "openssl",
                "speed",
                "-mr",
                "-elapsed",
                "-seconds",
                "{n}",
                "-bytes",
                "4096",
                "sha256",
                "aes-128-cbc",
            ],
        )
    },
    RealProgram {
        requires: &[from("gcc", "gcc")],
        inputs: &[Input::Functions],
        outputs: &["functions.o"],
        size: size(80, 1),
        ..RealProgram::command(
            "gcc",
            "gcc -O2, a file of 80 functions",
            &["gcc", "-O2", "-c", "functions.c", "-o", "functions.o"],
        )
    },
    RealProgram {
        requires: &[from("git", "git")],
        inputs: &[Input::Commits],
        prepare: &[
            &["git", "init", "-q", "-b", "main", "repository"],
            &[
                "sh",
                "-c",
                "git -C repository fast-import --quiet --done < commits",
            ],
        ],
        size: size(20_000, 3),
        ..RealProgram::command(
            "git",
            "git log -p --stat, 20 000 commits",
            &[
                "git",
                "-C",
                "repository",
                "--no-pager",
                "log",
                "-p",
                "--stat",
                "main",
            ],
        )
    },
    RealProgram {
        requires: &[
            from("redis-server", "redis-server"),
            from("redis-benchmark", "redis-tools"),
            from("redis-cli", "redis-tools"),
        ],
        masks: &[Mask::Numbers],
        size: size(20_000, 2000),
        run: Run::Server(Server {
            command: &[
                "redis-server",
                "--port",
                "{port}",
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--loglevel",
                "warning",
                "--logfile",
                "redis.log",
            ],
            ready: &[],
            clients: &[
                &[
                    "redis-benchmark",
                    "-p",
                    "{port}",
                    "-n",
                    "{n}",
                    "-c",
                    "20",
                    "--csv",
                    "-t",
                    "ping,set,get,lpush,lrange_100,hset",
                ],
                &["redis-cli", "-p", "{port}", "dbsize"],
                &[
                    "redis-cli",
                    "-p",
                    "{port}",
                    "eval",
                    "return redis.sha1hex(redis.call('get', 'key:__rand_int__'))",
                    "0",
                ],
            ],
            stop: &["redis-cli", "-p", "{port}", "shutdown", "nosave"],
            instead_of_root: None,
        }),
        ..RealProgram::command("redis", "redis-server under redis-benchmark", &[])
    },
    RealProgram {
        requires: &[
            from("nginx", "nginx-light"),
            from("ab", "apache2-utils"),
            from("cmp", "diffutils"),
            from("curl", "curl"),
        ],
        inputs: &[Input::Workload("nginx.conf"), Input::Page],
        masks: &[
            Mask::Lines("Total:"),
            Mask::Lines("%"),
            Mask::Lines("Connect:"),
            Mask::Lines("Processing:"),
            Mask::Lines("Waiting:"),
            Mask::Numbers,
        ],
        size: size(6000, 10),
        run: Run::Server(Server {
            command: &["nginx", "-p", "{folder}", "-e", "error.log", "-c", "nginx.conf"],
            ready: &[],
            clients: &[
                &[
                    "ab",
                    "-q",
                    // This option silences the warning about widely spread times.
                    "-S",
                    "-n",
                    "{n}",
                    "-c",
                    "8",
                    "-H",
                    "Accept-Encoding: gzip",
                    "http://127.0.0.1:{port}/page.txt",
                ],
                &["curl", "-s", "-o", "got", "http://127.0.0.1:{port}/page.txt"],
                &["cmp", "got", "page.txt"],
            ],
            stop: &[
                "nginx",
                "-p",
                "{folder}",
                "-e",
                "error.log",
                "-c",
                "nginx.conf",
                "-s",
                "quit",
            ],
            instead_of_root: None,
        }),
        ..RealProgram::command("nginx", "nginx, gzip on, under ab", &[])
    },
    RealProgram {
        requires: &[
            from("/usr/lib/postgresql/15/bin/postgres", "postgresql-15"),
            from("setpriv", "util-linux"),
        ],
        prepare: &[&[
            "/usr/lib/postgresql/15/bin/initdb",
            "-D",
            "data",
            "-U",
            "test",
            "-A",
            "trust",
            "--no-sync",
        ]],
        masks: &[
            Mask::Lines("latency"),
            Mask::Lines("tps"),
            Mask::Lines("initial connection time"),
        ],
        size: size(300, 2),
        run: Run::Server(Server {
            command: &[
                "/usr/lib/postgresql/15/bin/postgres",
                "-D",
                "data",
                "-p",
                "{port}",
                "-h",
                "127.0.0.1",
                "-k",
                "{folder}",
                "-F",
            ],
            ready: &[
                "/usr/lib/postgresql/15/bin/pg_isready",
                "-q",
                "-h",
                "127.0.0.1",
                "-p",
                "{port}",
            ],
            clients: &[
                &[
                    "/usr/lib/postgresql/15/bin/pgbench",
                    "-h",
                    "127.0.0.1",
                    "-p",
                    "{port}",
                    "-U",
                    "test",
                    "-i",
                    "-q",
                    "postgres",
                ],
                &[
                    "/usr/lib/postgresql/15/bin/pgbench",
                    "-h",
                    "127.0.0.1",
                    "-p",
                    "{port}",
                    "-U",
                    "test",
                    "-n",
                    "-c",
                    "4",
                    "-t",
                    "{n}",
                    "postgres",
                ],
                &[
                    "/usr/lib/postgresql/15/bin/psql",
                    "-h",
                    "127.0.0.1",
                    "-p",
                    "{port}",
                    "-U",
                    "test",
                    "-At",
                    "-c",
                    "SELECT count(*) FROM pgbench_history",
                    "postgres",
                ],
            ],
            stop: &[
                "/usr/lib/postgresql/15/bin/pg_ctl",
                "-D",
                "data",
                "stop",
                "-m",
                "fast",
            ],
            instead_of_root: Some("postgres"),
        }),
        ..RealProgram::command("postgres", "postgres under pgbench, 4 clients", &[])
    },
    RealProgram {
        requires: &[from("node", "nodejs")],
        inputs: &[Input::Workload("compute.js")],
        size: size(60, 1),
        ..RealProgram::command("node", "node, a compute script", &["node", "compute.js", "{n}"])
    },
    RealProgram {
        requires: &[from("rustc", "rustc")],
        inputs: &[Input::Workload("compute.rs")],
        prepare: &[&["rustc", "-O", "--edition=2024", "-o", "compute", "compute.rs"]],
        size: size(100, 1),
        ..RealProgram::command("rust", "a Rust program of 5 threads", &["./compute", "{n}"])
    },
    RealProgram {
        requires: &[from("go", "golang-go")],
        inputs: &[Input::Workload("compute.go")],
        prepare: &[&["go", "build", "-o", "compute", "compute.go"]],
        size: size(80, 1),
        ..RealProgram::command(
            "go",
            "a Go program, goroutines and garbage",
            &["./compute", "{n}"],
        )
    },
    RealProgram {
        requires: &[
            from("javac", "default-jdk-headless"),
            from("java", "default-jre-headless"),
        ],
        inputs: &[Input::Workload("Compute.java")],
        prepare: &[&["javac", "Compute.java"]],
        size: size(200, 1),
        ..RealProgram::command(
            "java",
            "a Java program, threads and the JIT",
            &["java", "Compute", "{n}"],
        )
    },
    RealProgram {
        requires: &[from("luajit", "luajit")],
        inputs: &[Input::Workload("compute.lua")],
        size: size(600, 1),
        ..RealProgram::command(
            "luajit",
            "luajit, a compute script",
            &["luajit", "compute.lua", "{n}"],
        )
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_single_words_and_differ() {
        let mut names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
        assert!(names.iter().all(|name| !name.contains(char::is_whitespace)));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROGRAMS.len());
    }
}
