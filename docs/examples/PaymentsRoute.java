import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.*;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.SmartLifecycle;
import org.springframework.kafka.core.*;
import org.springframework.kafka.support.SendResult;
import org.springframework.stereotype.Component;
import tools.jackson.core.StreamReadConstraints;
import tools.jackson.core.json.JsonFactory;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/** The producer's part of the route protocol: every record of the logical topic is sent through {@link #send}. */
@Component
public class PaymentsRoute implements SmartLifecycle {
    private static final TopicPartition ROUTES = new TopicPartition("__topicshift_routes", 0);
    private static final Set<String> GOES_ON = Set.of("running", "lease_expired");
    private static final Pattern TOPIC = Pattern.compile("(?!\\.{1,2}$)[a-zA-Z0-9._-]{1,249}");
    private static final int DELIVERY_MS = 30_000, MAX_BLOCK_MS = 5_000, HEARTBEAT_MS = 3_000, ASK_MS = 2_000;
    private static final long ARMED_MS = 10_000, UNARMED_MS = 900_000, LONGEST_WAIT_MS = 300_000, MOST = (1L << 53) - 1;

    /** A reading of two clocks: the wall clock may be set, and nanoTime stands still while the machine sleeps. */
    private record Now(long wallMs, long nano) {
        static Now read() { return new Now(System.currentTimeMillis(), System.nanoTime()); }
        long since(Now then) { return Math.max(wallMs - then.wallMs, (nano - then.nano) / 1_000_000); }
    }

    private record Route(long epoch, boolean paused, long untilMs, String active, boolean armed) { }

    /** The end of the route's log as it was asked for, and what the brokers' time was at least then (-1: not known). */
    private record End(Now asked, long leastMs, long offset) { }

    private interface Round { void run() throws Exception; }

    private final JsonMapper json = JsonMapper.builder(JsonFactory.builder().streamReadConstraints(
        StreamReadConstraints.builder().maxNestingDepth(32).build()).build()).build();
    private final String logical, participant, principal, instance;
    private final Map<String, Object> reading, asking;
    private final KafkaTemplate<String, String> records, acks;   // two producers: words never queue behind records
    private final List<Thread> threads = new ArrayList<>();
    private Consumer<byte[], byte[]> reader;
    private Admin admin;
    private End view, settling;
    private volatile boolean running;

    // Guarded by this object's lock, which is never held while anything waits for Kafka.
    private final Map<Integer, Long> offsets = new TreeMap<>();
    private String status = "blind", topic, said = "", problem = "", puzzle = "";
    private Route route;
    private Now confirmed, heard, saidAt = Now.read(), looked = new Now(0, System.nanoTime());
    private long obeyed, settledMs = -1, stampMs = -1, stampNano, serial, heardSerial, armedSerial;
    private int inside;
    private boolean closing;
    private volatile Throwable dead;

    public PaymentsRoute(ProducerFactory<String, String> producers, ConsumerFactory<?, ?> consumers, KafkaAdmin boot,
                         @Value("${route.topic:payments}") String logical,
                         @Value("${route.participant:checkout}") String participant,
                         @Value("${route.principal:}") String principal) throws Exception {
        if (producers.transactionCapable()) throw new IllegalStateException("a pause could fall into a transaction");
        this.logical = this.topic = logical;
        this.participant = participant;
        this.principal = principal.isEmpty() ? null : principal;
        this.instance = participant + "." + InetAddress.getLocalHost().getHostName() + "." + UUID.randomUUID();
        Map<String, Object> bounded = Map.of("enable.idempotence", true, "acks", "all", "retries", Integer.MAX_VALUE,
            "max.in.flight.requests.per.connection", 5, "linger.ms", 5);  // so a pause waits for deliveries alone
        this.records = new KafkaTemplate<>(producers, with(bounded, Map.of(
            "delivery.timeout.ms", DELIVERY_MS, "request.timeout.ms", 10_000, "max.block.ms", MAX_BLOCK_MS)));
        this.acks = new KafkaTemplate<>(producers, with(bounded, Map.of(
            "delivery.timeout.ms", 10_000, "request.timeout.ms", 5_000, "max.block.ms", ASK_MS,
            "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class)));
        this.reading = with(consumers.getConfigurationProperties(), Map.of("enable.auto.commit", false,
            "isolation.level", "read_committed", "auto.offset.reset", "earliest", "fetch.max.wait.ms", 200,
            "allow.auto.create.topics", false));
        this.reading.keySet().removeAll(Set.of("group.id", "group.instance.id", "group.protocol"));  // in no group
        this.asking = boot.getConfigurationProperties();
    }

    private static Map<String, Object> with(Map<String, Object> some, Map<String, Object> more) {
        Map<String, Object> all = new HashMap<>(some);
        all.putAll(more);
        return all;
    }

    /**
     * Send a record to the active topic. Waits while the route is paused. The future says what became of the record.
     *
     * @throws IllegalStateException nothing was sent: the route stays paused or unreadable, or this application stops
     */
    public CompletableFuture<SendResult<String, String>> send(String key, String value) throws InterruptedException {
        String to;
        synchronized (this) {
            for (Now began = Now.read(); !admits(Now.read()); wait(100)) {
                if (dead != null) throw new IllegalStateException("nobody follows the route any more", dead);
                if (closing) throw new IllegalStateException("this application stops");
                if (Now.read().since(began) > LONGEST_WAIT_MS) {
                    throw new IllegalStateException("the route is " + status + "; " + puzzle + problem);
                }
            }
            to = topic;
            inside++;
        }
        try {
            return records.send(to, key, value).whenComplete((done, error) -> delivered(to, done));
        } catch (RuntimeException | Error e) {
            delivered(to, null);
            throw e;
        }
    }

    private synchronized void delivered(String to, SendResult<String, String> done) {
        inside--;
        if (done != null && to.equals(topic)) {
            offsets.merge(done.getRecordMetadata().partition(), done.getRecordMetadata().offset(), Math::max);
        }
        if (status.equals("flushing")) obey();
        notifyAll();
    }

    /** Looks at the clocks itself, in the sender's thread: after a sleep nothing else may have run yet. */
    private boolean admits(Now now) {
        return dead == null && !closing && GOES_ON.contains(status) && inContact(now);
    }

    private boolean inContact(Now now) {
        if (confirmed == null || heard == null) return false;
        boolean close = armed() || armedSerial > 0 && armedSerial >= heardSerial;
        return Math.max(now.since(confirmed), now.since(heard)) <= (close ? ARMED_MS : UNARMED_MS);
    }

    private boolean armed() { return route != null && route.armed(); }

    private long leastMs(Now now) { return stampMs < 0 ? -1 : stampMs + (now.nano() - stampNano) / 1_000_000; }

    private boolean held() { return route != null && route.paused() && settledMs < route.untilMs(); }

    // ------------------------------------------------------------------------------------------------ reading

    private void follow() throws Exception {
        for (ConsumerRecord<byte[], byte[]> r : reader.poll(Duration.ofMillis(200))) take(r);
        obey();
        if (view == null && Now.read().since(looked) >= (confirmed == null ? 100 : 1_000)) {
            view = end(IsolationLevel.READ_COMMITTED);
            looked = view.asked();
            if (view.offset() < position()) reader.seekToBeginning(List.of(ROUTES));   // the topic was made again
        }
        if (settling == null && pastTheEnd()) settling = end(IsolationLevel.READ_UNCOMMITTED);
        long at = position();
        synchronized (this) {
            if (view != null && at >= view.offset()) {
                confirmed = view.asked();
                view = null;
                problem = "";
            }
            if (settling != null && at >= settling.offset()) {
                settledMs = Math.max(settledMs, settling.leastMs());
                settling = null;
            }
        }
        obey();
    }

    private long position() { return reader.position(ROUTES, Duration.ofMillis(ASK_MS)); }

    private synchronized boolean pastTheEnd() { return held() && leastMs(Now.read()) >= route.untilMs(); }

    private End end(IsolationLevel level) throws Exception {
        Now asked = Now.read();
        long least;
        synchronized (this) { least = leastMs(asked); }
        ListOffsetsOptions bounded = new ListOffsetsOptions(level).timeoutMs(ASK_MS);
        return new End(asked, least, admin.listOffsets(Map.of(ROUTES, OffsetSpec.latest()), bounded)
            .partitionResult(ROUTES).get(ASK_MS, TimeUnit.MILLISECONDS).offset());
    }

    /** Keep the record with the highest epoch. One that is not understood changes nothing, and is not acknowledged. */
    private synchronized void take(ConsumerRecord<byte[], byte[]> r) {
        if (r.value() == null || !Arrays.equals(r.key(), logical.getBytes(StandardCharsets.UTF_8))) return;
        try {
            long stamp = r.timestampType() == TimestampType.LOG_APPEND_TIME ? r.timestamp() : -1;
            Route seen = judge(json.readTree(r.value()), stamp);
            if (route != null && seen.epoch() <= route.epoch()) return;
            route = seen;
            puzzle = "";
        } catch (RuntimeException e) {
            puzzle = "a record of its route is not understood: " + e + " ";
        }
    }

    private Route judge(JsonNode r, long stampMs) {
        need(number(r, "v", 1, 1) == 1 && r.path("logical").isString() && logical.equals(r.path("logical").asString()));
        String state = r.path("state").asString(""), active = name(r, "active");
        boolean paused = state.equals("paused");
        need(paused || state.equals("open"));
        long epoch = number(r, "epoch", 1, MOST), until = -1;
        if (paused && r.hasNonNull("until_ms")) until = number(r, "until_ms", 0, MOST);
        else if (paused) until = stamped(stampMs) + number(r, "lease_ms", 1, MOST);
        if (paused && r.hasNonNull("valid_before_ms")) {
            String otherwise = name(r, "else_active");
            if (stamped(stampMs) >= number(r, "valid_before_ms", 0, MOST)) active = otherwise;   // it came too late
        }
        boolean armed = paused || r.hasNonNull("armed") && number(r, "armed", 0, MOST) > 0;
        return new Route(epoch, paused, until, active, armed);
    }

    private static void need(boolean holds) { if (!holds) throw new IllegalArgumentException("a field is wrong"); }

    private static long stamped(long stampMs) { need(stampMs >= 0); return stampMs; }

    private static String name(JsonNode r, String field) {
        need(r.path(field).isString() && TOPIC.matcher(r.path(field).asString()).matches());
        return r.path(field).asString();
    }

    private static long number(JsonNode r, String field, long least, long most) {
        need(r.path(field).isIntegralNumber() && r.path(field).canConvertToLong());
        long found = r.path(field).asLong();
        need(least <= found && found <= most);
        return found;
    }

    /** The table of states. A topic is left, and a pause acknowledged, only once nothing is undelivered. */
    private synchronized void obey() {
        String next = "blind", to = topic;
        if (confirmed != null && held()) {
            next = "paused";
            to = route.active();
        } else if (inContact(Now.read())) {
            next = route != null && route.paused() ? "lease_expired" : "running";
            to = route == null ? logical : route.active();
        }
        boolean stays = GOES_ON.contains(next) && to.equals(topic);
        if (GOES_ON.contains(status) && !stays) status = "flushing";
        if (!status.equals("flushing") || inside == 0 || stays) {
            if (!to.equals(topic)) offsets.clear();
            status = next;
            topic = to;
        }
        obeyed = route == null ? 0 : route.epoch();
        notifyAll();
    }

    // ------------------------------------------------------------------------------------------------ acknowledging

    private void acknowledge() throws Exception {
        String what;
        synchronized (this) {
            what = status + " " + obeyed + " " + topic + " " + armed() + " " + (stampMs >= 0);
            if (what.equals(said) && Now.read().since(saidAt) < HEARTBEAT_MS) {
                wait(200);
                return;
            }
        }
        say(what, null);
    }

    private CompletableFuture<?> say(String what, String last) {
        Map<String, Object> ack = new LinkedHashMap<>();
        Now now = Now.read();
        long number;
        synchronized (this) {
            number = ++serial;
            if (armed()) armedSerial = number;
            ack.put("v", 1);
            ack.put("logical", logical);
            ack.put("role", "producer");
            ack.put("participant", participant);
            ack.put("instance", instance);
            ack.put("group", null);
            ack.put("principal", principal);
            ack.put("epoch", obeyed);
            ack.put("status", last == null ? status : last);
            ack.put("topic", topic);
            ack.put("armed", armed());
            ack.put("offsets", new TreeMap<>(offsets));
            ack.put("clock_ms", stampMs < 0 ? null : leastMs(now));
            ack.put("heartbeat_ms", HEARTBEAT_MS);
            ack.put("gone_ms", goneMs(armed()));
            ack.put("armed_gone_ms", goneMs(true));
            ack.put("reason", puzzle + problem);
            said = what;
            saidAt = now;
        }
        // Stamped with 0, so that the time that comes back is the broker's or none.
        return acks.send("__topicshift_acks", 0, 0L, logical + "/" + instance, json.writeValueAsString(ack))
            .whenComplete((done, error) -> answered(number, now, done, error));
    }

    private static long goneMs(boolean armed) {
        return (armed ? ARMED_MS : UNARMED_MS) + MAX_BLOCK_MS + DELIVERY_MS + 5_000;
    }

    private synchronized void answered(long number, Now sent, SendResult<?, ?> done, Throwable error) {
        if (error != null) {
            failed(error);
            return;
        }
        if (number >= heardSerial) {
            heardSerial = number;
            heard = sent;
        }
        if (done.getRecordMetadata().timestamp() > 0) {
            stampMs = done.getRecordMetadata().timestamp();
            stampNano = System.nanoTime();
        }
    }

    private synchronized void failed(Throwable error) { problem = error.toString(); }

    // ------------------------------------------------------------------------------------------------ its life

    @Override public void start() {
        running = true;
        admin = Admin.create(asking);
        reader = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        reader.assign(List.of(ROUTES));
        reader.seekToBeginning(List.of(ROUTES));
        begin("route-reader", this::follow);
        begin("route-heartbeat", this::acknowledge);
    }

    /** A thread that dies leaves why: whoever sends is told at once, and the other thread falls silent as well. */
    private void begin(String name, Round round) {
        Thread thread = new Thread(() -> {
            try {
                while (running && dead == null) {
                    try {
                        round.run();
                    } catch (InterruptedException | InterruptException e) {
                        throw e;
                    } catch (Exception e) {   // one bad round: the contact grows older, and ends if this goes on
                        failed(e);
                        Thread.sleep(200);
                    }
                }
            } catch (Throwable e) {
                synchronized (this) {
                    dead = e;
                    notifyAll();
                }
            }
        }, name);
        thread.setDaemon(true);
        threads.add(thread);
        thread.start();
    }

    /** Returns only when everything is delivered and the good-bye is said. */
    @Override public void stop() {
        try {
            Now began = Now.read();
            synchronized (this) {
                closing = true;
                notifyAll();
                while (inside > 0 && Now.read().since(began) < MAX_BLOCK_MS + DELIVERY_MS) wait(100);
            }
            running = false;
            for (Thread thread : threads) thread.join(10_000);
            if (inside == 0) say("", "gone").get(5, TimeUnit.SECONDS);   // else it may yet write: no good-bye
        } catch (Exception e) {
            failed(e);   // without a good-bye it is waited for until gone_ms
        } finally {
            records.destroy();
            acks.destroy();
            admin.close(Duration.ofSeconds(2));
            reader.close();
        }
    }

    @Override public boolean isRunning() { return running; }

    /** Starts before, and stops after, whatever sends: the web server, listener containers. */
    @Override public int getPhase() { return 0; }
}
