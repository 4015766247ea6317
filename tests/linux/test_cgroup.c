/* SPDX-License-Identifier: MIT */
/* What control groups let a process have, from a tree of files like that of the kernel. */
#include <string.h>

#include "linux/cgroup.h"

#include "../directory.h"
#include "../unit.h"

#define NONE UINT64_MAX

static void say(const char *path, const char *text)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "%s", path_of(path));
    for (char *slash = whole + strlen(directory) + 1; (slash = strchr(slash, '/')) != NULL;
         slash++) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static uint64_t limit(const char *text)
{
    return cgroup_memory_limit_in(text, directory);
}

static void the_least_limit_on_the_way_up_counts(void **state)
{
    (void)state;
    assert_int_equal(limit("0::/a/b/c\n"), NONE);
    say("a/b/c/memory.max", "max\n");
    say("a/b/memory.max", "5000\n");
    say("a/memory.max", "7000\n");
    say("a/b/d/memory.max", "100\n");
    assert_int_equal(limit("0::/a/b/c\n"), 5000);
    assert_int_equal(limit("0::/a/b/d\n"), 100);
    assert_int_equal(limit("0::/a/bb\n"), 7000);
    assert_int_equal(limit("0::/elsewhere\n"), NONE);
    assert_int_equal(limit("0::/\n"), NONE);
}

static void a_container_whose_path_is_the_hosts_has_its_roots_limit(void **state)
{
    (void)state;
    say("memory.max", "3000\n");
    assert_int_equal(limit("0::/host/pod/c1\n"), 3000);
    assert_int_equal(limit("0::/../other\n"), 3000);
    assert_int_equal(limit(""), 3000);
    assert_int_equal(remove(path_of("memory.max")), 0);
}

static void version_1_has_its_groups_below_the_controller(void **state)
{
    (void)state;
    say("memory/memory.limit_in_bytes", "9223372036854771712\n");
    say("memory/x/memory.limit_in_bytes", "4000\n");
    say("memory/y/memory.limit_in_bytes", "2000\n");
    assert_int_equal(limit("9:name=systemd:/y\n4:cpu,memory:/x/sub\n3:cpuset:/y\n0::/\n"), 4000);
    assert_int_equal(limit("4:memory:/x\n0::/a/b\n"), 4000);
    assert_int_equal(limit("4:memory_like,cpu:/x\n"), 9223372036854771712u);
}

static void text_that_is_cut_or_no_groups_at_all_is_passed_over(void **state)
{
    (void)state;
    assert_int_equal(limit("nothing\n:\n::\n4:memory\n4:memory:/y"), 9223372036854771712u);
    char path[2048] = "0::/";
    memset(path + 4, 'p', sizeof(path) - 6);
    path[sizeof(path) - 2] = '\n';
    assert_int_equal(limit(path), 9223372036854771712u);
    assert_true(cgroup_memory_limit() > 0);
}

static int make(void **state)
{
    (void)state;
    return directory_make("cgroup");
}

static int clean(void **state)
{
    (void)state;
    return directory_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_limit_on_the_way_up_counts),
        cmocka_unit_test(a_container_whose_path_is_the_hosts_has_its_roots_limit),
        cmocka_unit_test(version_1_has_its_groups_below_the_controller),
        cmocka_unit_test(text_that_is_cut_or_no_groups_at_all_is_passed_over),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
