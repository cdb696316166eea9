# Runs on the head as a managed run command, after the lines that unpack $incoming/scaling.tar:
# what Ray's autoscaler needs, what lets the head sleep, and the stack's settings of both.
lib=/usr/local/lib/volley/scaling
home=/var/lib/volley
deadline=$((SECONDS + TIMEOUT_S))

# cloud-init makes the folder and its owner.
until [[ -d $home ]] && id ray > /dev/null 2>&1; do
  if ((SECONDS > deadline)); then
    echo "volley: cloud-init on the head has not made $home (/var/log/cloud-init-output.log)" >&2
    exit 1
  fi
  sleep 1
done
tar --extract --no-same-owner --directory "$incoming" --file "$incoming/scaling.tar"

changed=0
cmp --silent "$incoming/autoscaler.sha256" "$lib/autoscaler.sha256" || changed=1
if ((changed)); then
  rm -rf "$lib.new" "$lib.old"
  mkdir -p "$lib.new"
  mv "$incoming/volley_cluster" "$lib.new/"
  chmod -R a+rX "$lib.new"
  if [[ -e $lib ]]; then mv --no-target-directory "$lib" "$lib.old"; fi
  mv --no-target-directory "$lib.new" "$lib"
  rm -rf "$lib.old"
fi
# Ray reads the first one again in each update: at any moment it is whole. Where Azure scales the
# workers there is none, and Ray starts without its autoscaler.
for file in autoscaling.yaml cluster-settings.json; do
  if [[ -e $incoming/$file ]]; then
    install --mode 0644 "$incoming/$file" "$home/.$file.new"
    mv "$home/.$file.new" "$home/$file"
  else
    rm -f "$home/$file" "$home/cluster-workers.json"
  fi
done
install --mode 0644 "$incoming"/units/* /etc/systemd/system/
systemctl daemon-reload
systemctl enable --now --quiet cluster-sleep.timer
# Ray imports the provider, and reads its settings, once.
if ((changed)) && systemctl --quiet is-active ray-head.service; then
  echo "the autoscaler has changed: Ray starts again, and experiments continue from checkpoints"
  systemctl restart ray-head.service
fi
# Once, on a new head. It fails where it is running already.
if ((FIRST_WORKERS)) && [[ ! -e $home/cluster-workers.json ]]; then
  systemd-run --quiet --unit=first-workers --collect --uid=ray --setenv=PYTHONPATH="$lib" \
    --property=EnvironmentFile=/etc/volley/machine.env \
    python3 -m volley_cluster.autoscaler.first_workers "$FIRST_WORKERS" "$home" || true
fi
# Last: a script that was killed before does all of it again.
install --mode 0644 "$incoming/autoscaler.sha256" "$lib/"
echo "$SAID"
