# Many words, a function, a text of some MiB that is doubled, and pipelines, whose parts are forked.
set -- $(seq 1 300000)
sum=0
for word do sum=$((sum + word % 1009)); done
echo "words $# $sum"
text=0123456789abcdef
while [ ${#text} -lt 8000000 ]; do text=$text$text; done
echo "text ${#text}"
echo "piped $(echo "$text" | wc -c) $(echo "$@" | wc -w) $(for word do echo "$word"; done | tail -n 1)"
