// A program that is not run, because of how it is linked.
#include <stdio.h>

int main(void) { return puts("hello") < 0; }
