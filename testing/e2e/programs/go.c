// A program with the note that the linker of Go leaves: its memory stays local.

#include "check.h"

__asm__(".pushsection .note.go.buildid, \"a\", @note\n"
        ".balign 4\n.long 4, 4, 4\n.ascii \"Go\\0\\0\"\n.ascii \"id\\0\\0\"\n"
        ".popsection");

int main(void) {
    unsigned char *memory = malloc(32 * MIB);
    fill(memory, 32 * MIB, 1);
    check("its memory is local", !is_far(memory) && is_filled(memory, 32 * MIB, 1));
    return done();
}
