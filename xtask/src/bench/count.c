/* A plugin for qemu's user-mode emulator that counts executed blocks and instructions without
 * callbacks, which is the minimum cost of a tracer inside qemu. Debian packages no plugin header,
 * so this file declares the used parts of qemu's plugin interface, version 1. */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct qemu_plugin_tb;
enum { ADD_U64 };
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int operation, void *to, uint64_t amount);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*ending)(uint64_t, void *), void *argument);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

int qemu_plugin_version = 1;
static uint64_t blocks, instructions;

static void translated(uint64_t id, struct qemu_plugin_tb *block) {
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &blocks, 1);
    qemu_plugin_register_vcpu_tb_exec_inline(block, ADD_U64, &instructions, qemu_plugin_tb_n_insns(block));
}

static void ending(uint64_t id, void *argument) {
    (void)id, (void)argument;
    fprintf(stderr, "qemu counted %" PRIu64 " blocks %" PRIu64 " instructions\n", blocks, instructions);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ending, NULL);
    return 0;
}
