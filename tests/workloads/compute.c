/* Compute without system calls: SHA-256 of a buffer, a sieve, a matrix product and a sort, each
 * folded into one number. The argument says how often. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_block(uint32_t state[8], const uint8_t *block) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotated(v[4], 6) ^ rotated(v[4], 11) ^ rotated(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + K[i] + w[i];
        uint32_t s0 = rotated(v[0], 2) ^ rotated(v[0], 13) ^ rotated(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

static uint64_t hash(unsigned round) {
    static uint8_t buffer[1 << 16];
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    for (size_t i = 0; i < sizeof buffer; i++)
        buffer[i] = (uint8_t)(i * 31 + round);
    for (size_t i = 0; i < sizeof buffer; i += 64)
        sha256_block(state, buffer + i);
    return (uint64_t)state[0] << 32 | state[7];
}

static uint64_t sieve(void) {
    static uint8_t composite[1 << 18];
    uint64_t primes = 0;
    memset(composite, 0, sizeof composite);
    for (size_t i = 2; i < sizeof composite; i++) {
        if (composite[i])
            continue;
        primes++;
        for (size_t j = i * i; j < sizeof composite; j += i)
            composite[j] = 1;
    }
    return primes;
}

static uint64_t product(unsigned round) {
    enum { N = 96 };
    static double a[N][N], b[N][N];
    double trace = 0;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = (double)((i * 7 + j * 3 + (int)round) % 17);
            b[i][j] = (double)((i * 5 + j * 11) % 13);
        }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += a[i][k] * b[k][j];
            trace += i == j ? sum : sum / 1024;
        }
    return (uint64_t)trace;
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint64_t sorted(unsigned round) {
    enum { N = 20000 };
    static uint32_t numbers[N];
    uint32_t seed = round + 1;
    for (int i = 0; i < N; i++)
        numbers[i] = seed = seed * 1664525 + 1013904223;
    qsort(numbers, N, sizeof *numbers, ascending);
    return numbers[N / 2];
}

int main(int argc, char **argv) {
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    uint64_t folded = 0;
    for (unsigned round = 0; round < rounds; round++)
        folded = folded * 31 + hash(round) + sieve() + product(round) + sorted(round);
    printf("%016llx\n", (unsigned long long)folded);
    return 0;
}
