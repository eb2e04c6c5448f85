/* Preloaded into a player under test: logs when it writes sound, and can let its clock drift.
 *
 * The stamps are of the kernel's clock, taken by system call, so that neither the player nor the
 * drift of its own clock has a part in them. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct stamp {
    uint64_t nanos;
    uint64_t bytes;
};

static const char *sound;
static int stamps = -1;
static size_t (*next_fwrite)(const void *, size_t, size_t, FILE *);

static int64_t nanos(const struct timespec *time) {
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

static int64_t kernel_clock(void) {
    struct timespec time = {0, 0};
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
    return nanos(&time);
}

/* Logs what went into the file of the sound; everything else that is written is none of ours. */
static void log_write(int file, int64_t at, int64_t bytes) {
    struct stat written, wanted;
    if (stamps < 0 || bytes <= 0 || fstat(file, &written) || stat(sound, &wanted) ||
        written.st_dev != wanted.st_dev || written.st_ino != wanted.st_ino)
        return;
    struct stamp stamp = {(uint64_t)at, (uint64_t)bytes};
    if (syscall(SYS_write, stamps, &stamp, sizeof stamp) != sizeof stamp)
        abort();
}

ssize_t write(int file, const void *data, size_t length) {
    int64_t at = kernel_clock();
    ssize_t done = syscall(SYS_write, file, data, length);
    int error = errno;
    log_write(file, at, done);
    errno = error;
    return done;
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    int64_t at = kernel_clock();
    ssize_t done = syscall(SYS_writev, file, parts, count);
    int error = errno;
    log_write(file, at, done);
    errno = error;
    return done;
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
    int64_t at = kernel_clock();
    size_t done = next_fwrite(data, size, count, file);
    int error = errno;
    log_write(fileno(file), at, (int64_t)(done * size));
    errno = error;
    return done;
}

static double drift;
static int64_t drift_from;

/* In place of the vDSO's function: libraries and programs that make no call of the C library ask
 * there too. The offset begins at zero, so that times before and after are comparable. */
static int drifting_clock(clockid_t clock, struct timespec *time) {
    if (syscall(SYS_clock_gettime, clock, time))
        return -errno;
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW ||
        clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME) {
        int64_t now = nanos(time);
        now += (int64_t)((double)(now - drift_from) * drift);
        time->tv_sec = now / 1000000000;
        time->tv_nsec = now % 1000000000;
    }
    return 0;
}

/* Overwrites the beginning of the vDSO's function with a jump. The kernel lets no part of the vDSO
 * have other rights than the rest. */
static int patch_clock(void) {
#if defined(__x86_64__)
    unsigned char jump[14] = {0xff, 0x25, 0, 0, 0, 0};
    int (*target)(clockid_t, struct timespec *) = drifting_clock;
    memcpy(jump + 6, &target, sizeof target);
    void *library = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *entry = library ? dlvsym(library, "__vdso_clock_gettime", "LINUX_2.6") : NULL;
    char *image = (char *)getauxval(AT_SYSINFO_EHDR);
    if (entry == NULL || image == NULL)
        return 0;
    const Elf64_Phdr *parts = (const Elf64_Phdr *)(image + ((const Elf64_Ehdr *)image)->e_phoff);
    size_t length = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < ((const Elf64_Ehdr *)image)->e_phnum; i++)
        if (parts[i].p_type == PT_LOAD)
            length = (parts[i].p_memsz + page - 1) & ~(page - 1);
    if (mprotect(image, length, PROT_READ | PROT_WRITE | PROT_EXEC))
        return 0;
    memcpy(entry, jump, sizeof jump);
    return mprotect(image, length, PROT_READ | PROT_EXEC) == 0;
#else
    return 0;
#endif
}

__attribute__((constructor)) static void begin(void) {
    next_fwrite = (size_t(*)(const void *, size_t, size_t, FILE *))dlsym(RTLD_NEXT, "fwrite");
    sound = getenv("AULOS_STAMPED_FILE");
    const char *path = getenv("AULOS_STAMPS");
    if (sound && path)
        stamps = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    const char *ppm = getenv("AULOS_CLOCK_PPM");
    if (ppm == NULL)
        return;
    drift = strtod(ppm, NULL) * 1e-6;
    drift_from = kernel_clock();
    struct timespec own;
    if (!patch_clock() || clock_gettime(CLOCK_MONOTONIC, &own) || nanos(&own) < drift_from) {
        fputs("the clock of this process cannot be replaced\n", stderr);
        _exit(78);
    }
}
