/* arena.c: a framework's larger tensors on the CPU, in memory that the other ranks of the host can map.
 *
 * The library that allocates for torch (libc10.so) reaches posix_memalign and free through entries of its own import
 * table. Those are pointed here: what is large comes from one file in memory, mapped once and never moved, which hora
 * registers as a whole; a gradient is then registered wherever autograd puts it. What is small, aligned to more than a
 * unit or finds no room goes to the system's allocator as before, and free knows an address by its range.
 *
 * The memory is shared, so a forked child would write into its parent's tensors: before a fork what is in use is copied,
 * and the child gets the copy at the same addresses and takes no more from here.
 */
#define _GNU_SOURCE
#include "bridges.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    UNIT = 16 << 10,         /* what sizes are rounded up to */
    SMALLEST = 64 << 10,     /* below, the copy into a bucket costs less than a meeting of its own */
    RETURNED = 64 << 20,     /* a block from this size on goes back to the system when it is freed */
};

static struct {
    pthread_mutex_t lock; /* guards all below but base and bytes, which are set once */
    char *base;
    uint64_t bytes;
    int fd;
    int forked;     /* this process is a child: nothing new is put here */
    uint32_t units; /* in all */
    uint32_t first; /* no free unit is below */
    uint32_t top;   /* no unit from here on was ever used */
    uint64_t used;
    uint32_t *run;  /* at the first and last unit of each run of units: its length times 2, plus 1 where it is in use */
    void *copied;   /* while a fork is under way: the used runs, each at its offset */
    size_t copied_bytes;
} arena = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static int (*system_memalign)(void **, size_t, size_t) = posix_memalign;
static void (*system_free)(void *) = free;

static void mark(uint32_t at, uint32_t n, uint32_t in_use) {
    arena.run[at] = arena.run[at + n - 1] = n << 1 | in_use;
}

static void *take(size_t bytes) {
    uint32_t n = (uint32_t)((bytes + UNIT - 1) / UNIT);
    void *found = NULL;
    pthread_mutex_lock(&arena.lock);
    if (!arena.forked)
        for (uint32_t at = arena.first; at < arena.units; at += arena.run[at] >> 1) {
            uint32_t have = arena.run[at] >> 1;
            if (arena.run[at] & 1 || have < n)
                continue;
            mark(at, n, 1);
            if (have > n)
                mark(at + n, have - n, 0);
            if (at == arena.first)
                arena.first = at + n;
            if (at + n > arena.top)
                arena.top = at + n;
            arena.used += (uint64_t)n * UNIT;
            found = arena.base + (uint64_t)at * UNIT;
            break;
        }
    pthread_mutex_unlock(&arena.lock);
    return found;
}

static void give(char *p) {
    uint32_t at = (uint32_t)((uint64_t)(p - arena.base) / UNIT);
    pthread_mutex_lock(&arena.lock);
    uint32_t n = arena.run[at] >> 1;
    arena.used -= (uint64_t)n * UNIT;
    if (!arena.forked && (uint64_t)n * UNIT >= RETURNED)
        madvise(p, (uint64_t)n * UNIT, MADV_REMOVE);
    if (at + n < arena.units && !(arena.run[at + n] & 1))
        n += arena.run[at + n] >> 1;
    if (at > 0 && !(arena.run[at - 1] & 1)) {
        uint32_t before = arena.run[at - 1] >> 1;
        at -= before, n += before;
    }
    mark(at, n, 0);
    if (at < arena.first)
        arena.first = at;
    pthread_mutex_unlock(&arena.lock);
}

static int arena_memalign(void **out, size_t align, size_t bytes) {
    if (bytes >= SMALLEST && bytes <= arena.bytes && align <= UNIT) {
        void *p = take(bytes);
        if (p) {
            *out = p;
            return 0;
        }
    }
    return system_memalign(out, align, bytes);
}

static void arena_free(void *p) {
    if ((uint64_t)((char *)p - arena.base) < arena.bytes)
        give(p);
    else
        system_free(p);
}

/* -- fork */

static void before_fork(void) {
    pthread_mutex_lock(&arena.lock);
    arena.copied = NULL;
    arena.copied_bytes = (size_t)arena.top * UNIT;
    if (arena.forked || arena.copied_bytes == 0)
        return;
    char *to = mmap(NULL, arena.copied_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (to == MAP_FAILED)
        return;
    for (uint32_t at = 0; at < arena.top; at += arena.run[at] >> 1)
        if (arena.run[at] & 1) {
            uint64_t offset = (uint64_t)at * UNIT;
            memcpy(to + offset, arena.base + offset, (uint64_t)(arena.run[at] >> 1) * UNIT);
        }
    arena.copied = to;
}

static void in_parent(void) {
    if (arena.copied)
        munmap(arena.copied, arena.copied_bytes);
    arena.copied = NULL;
    pthread_mutex_unlock(&arena.lock);
}

static void in_child(void) {
    if (!arena.forked) {
        /* Without a copy the child has none of the tensors, rather than its parent's own. */
        mmap(arena.base, arena.bytes, arena.copied || !arena.copied_bytes ? PROT_READ | PROT_WRITE : PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        if (arena.copied)
            mremap(arena.copied, arena.copied_bytes, arena.copied_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, arena.base);
        arena.forked = 1;
        arena.copied = NULL;
    }
    pthread_mutex_unlock(&arena.lock);
}

/* -- the import table */

typedef struct {
    const char *library; /* what the file's name begins with */
    int aligned, freed;  /* entries pointed here */
    int error;
} search;

static int set(search *s, void **entry, void *to, const struct dl_phdr_info *info) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)entry & ~(page - 1);
    int sealed = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + h->p_vaddr;
        if (h->p_type == PT_GNU_RELRO && (uintptr_t)entry >= from && (uintptr_t)entry < from + h->p_memsz)
            sealed = 1;
    }
    if (sealed && mprotect((void *)at, page, PROT_READ | PROT_WRITE)) {
        s->error = errno;
        return 0;
    }
    __atomic_store_n(entry, to, __ATOMIC_RELEASE);
    if (sealed)
        mprotect((void *)at, page, PROT_READ);
    return 1;
}

static int look(struct dl_phdr_info *info, size_t size, void *of) {
    search *s = of;
    const char *name = strrchr(info->dlpi_name, '/');
    (void)size;
    name = name ? name + 1 : info->dlpi_name;
    if (strncmp(name, s->library, strlen(s->library)))
        return 0;
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (!dynamic)
        return 1;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    const ElfW(Rela) *tables[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++)
        switch (d->d_tag) {
        case DT_SYMTAB: symbols = (const void *)d->d_un.d_ptr; break;
        case DT_STRTAB: strings = (const void *)d->d_un.d_ptr; break;
        case DT_JMPREL: tables[0] = (const void *)d->d_un.d_ptr; break;
        case DT_PLTRELSZ: bytes[0] = d->d_un.d_val; break;
        case DT_RELA: tables[1] = (const void *)d->d_un.d_ptr; break;
        case DT_RELASZ: bytes[1] = d->d_un.d_val; break;
        }
    if (!symbols || !strings)
        return 1;
    /* free first: what comes from here must find its way back. */
    for (int freeing = 1; freeing >= 0; freeing--)
        for (int t = 0; t < 2; t++)
            for (size_t i = 0; tables[t] && i < bytes[t] / sizeof(ElfW(Rela)); i++) {
                const ElfW(Rela) *r = &tables[t][i];
                const ElfW(Sym) *symbol = &symbols[ELF64_R_SYM(r->r_info)];
                const char *wanted = freeing ? "free" : "posix_memalign";
                if (!ELF64_R_SYM(r->r_info) || symbol->st_shndx != SHN_UNDEF || strcmp(strings + symbol->st_name, wanted))
                    continue;
                if (!freeing && !s->freed)
                    return 1;
                void *to = freeing ? (void *)arena_free : (void *)arena_memalign;
                if (set(s, (void **)(info->dlpi_addr + r->r_offset), to, info))
                    *(freeing ? &s->freed : &s->aligned) += 1;
                else if (freeing)
                    return 1;
            }
    return 1;
}

static int map_all(uint64_t bytes) {
    bytes = bytes / UNIT * UNIT;
    if (bytes < SMALLEST || bytes / UNIT >= 1u << 31)
        return EINVAL;
    int fd = (int)syscall(SYS_memfd_create, "hora-torch", 1 /* MFD_CLOEXEC */);
    if (fd < 0)
        return errno;
    uint32_t units = (uint32_t)(bytes / UNIT);
    uint32_t *run = mmap(NULL, units * sizeof *run, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    char *base = MAP_FAILED;
    if (run != MAP_FAILED && !ftruncate(fd, (off_t)bytes))
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED || pthread_atfork(before_fork, in_parent, in_child)) {
        int error = errno ? errno : ENOMEM;
        if (base != MAP_FAILED)
            munmap(base, bytes);
        if (run != MAP_FAILED)
            munmap(run, units * sizeof *run);
        close(fd);
        return error;
    }
    madvise(base, bytes, MADV_HUGEPAGE);
    arena.run = run, arena.units = units, arena.fd = fd;
    mark(0, units, 0);
    arena.base = base;
    arena.bytes = bytes;
    return 0;
}

int32_t hora_arena(hora_str library, uint64_t bytes, uint64_t *about) {
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
    int32_t error = 0;
    pthread_mutex_lock(&opening);
    if (library && !arena.base) {
        error = map_all(bytes);
        search s = {.library = library};
        if (!error) {
            dl_iterate_phdr(look, &s);
            error = s.aligned ? 0 : s.error ? s.error : ENOSYS; /* mapped for nothing, and once only */
        }
    }
    pthread_mutex_unlock(&opening);
    pthread_mutex_lock(&arena.lock);
    about[0] = (uint64_t)(uintptr_t)arena.base;
    about[1] = arena.bytes;
    about[2] = (uint64_t)(arena.forked ? -1 : arena.fd);
    about[3] = arena.used;
    pthread_mutex_unlock(&arena.lock);
    return error;
}
