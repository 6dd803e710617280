# What only bash has: arrays by number and by name.
declare -A by_name
for ((n = 0; n < 150000; n++)); do
  by_number[n]="value $n"
  by_name[key$((n * 7919 % 150000))]=$n
done
sum=0
for ((n = 0; n < 150000; n++)); do sum=$((sum + by_name[key$n] * (n % 7) % 1009)); done
echo "arrays ${#by_number[@]} ${#by_name[@]} $sum"
echo "from a child: $(for ((n = 0; n < 150000; n += 1000)); do echo "${by_number[n]}"; done | md5sum)"
